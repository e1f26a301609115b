// Package wirefuzz holds the fuzzers of the wire format's decoders. They stand apart from
// package messages because its tests run a NATS server, and a fuzzer's build instruments
// everything that its package's tests import.
package wirefuzz
