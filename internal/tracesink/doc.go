// Package tracesink is an OpenTelemetry collector small enough to live inside a
// program: refitctl's demo and the tests ask it what a refit looked like, with
// no service installed.
//
// A [Sink] listens on loopback ports that the system chooses, takes OTLP over
// gRPC and over HTTP with protobuf, and keeps spans by trace within limits, the
// oldest trace leaving first. It can hand each request on, unchanged, to another
// OTLP address. Metrics and logs are taken and, but for that forwarding,
// dropped: senders need not know that only traces are kept.
//
// [Trace.Draw] writes a trace as a tree across processes. It never judges: a
// span whose parent was not seen is drawn below a line that says so.
//
// The law: what a Sink has acknowledged is in it until a limit is reached, and
// every span that a limit cost is counted.
package tracesink
