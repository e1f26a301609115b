package messages

import "github.com/drydock-rl/drydock/pkg/messages/protocol"

// Key names one version, ordered by (run, version).
type Key = protocol.Key

// Digest is the SHA-256 of an encoded payload.
type Digest = protocol.Digest

// ParseKey reads "<run>.<version>".
func ParseKey(s string) (Key, error) { return protocol.ParseKey(s) }

// ParseDigest reads 64 lower-case hexadecimal digits.
func ParseDigest(s string) (Digest, error) { return protocol.ParseDigest(s) }

// Ref names one exact version: its key and the digest of its manifest.
type Ref = protocol.Ref
