package protocol

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Key names one version: the run that published it and the trainer's step.
// Keys are ordered by run first, so that every version of a newer run is newer
// than every version of the runs that it fenced.
type Key struct {
	Run     uint64 // counts from 1; 0 is no run
	Version uint64 // the trainer's step
}

// Compare orders keys by (run, version): negative when k is older than o.
func (k Key) Compare(o Key) int {
	if c := cmp.Compare(k.Run, o.Run); c != 0 {
		return c
	}
	return cmp.Compare(k.Version, o.Version)
}

// Less says whether k is older than o.
func (k Key) Less(o Key) bool { return k.Compare(o) < 0 }

// IsZero says whether k names nothing: runs count from 1.
func (k Key) IsZero() bool { return k.Run == 0 }

// String writes the key as it stands in subjects: "<run>.<version>".
func (k Key) String() string {
	return strconv.FormatUint(k.Run, 10) + "." + strconv.FormatUint(k.Version, 10)
}

// ParseKey reads what String wrote. Signs, leading zeros and a zero run are refused,
// because each key has exactly one subject.
func ParseKey(s string) (Key, error) {
	run, version, ok := strings.Cut(s, ".")
	if !ok {
		return Key{}, fmt.Errorf("parse version key %q: want <run>.<version>", s)
	}
	r, err := parseNumber(run)
	if err != nil {
		return Key{}, fmt.Errorf("parse run of version key %q: %w", s, err)
	}
	v, err := parseNumber(version)
	if err != nil {
		return Key{}, fmt.Errorf("parse version of version key %q: %w", s, err)
	}
	if r == 0 {
		return Key{}, fmt.Errorf("parse version key %q: runs count from 1", s)
	}
	return Key{Run: r, Version: v}, nil
}

func parseNumber(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, err
	}
	if strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("%q is not a plain decimal number", s)
	}
	return n, nil
}

// Digest is the SHA-256 of a payload as it was stored, before any decompression.
type Digest [sha256.Size]byte

// Sum is the digest of b.
func Sum(b []byte) Digest { return sha256.Sum256(b) }

// IsZero says whether d was never set; no payload has the zero digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// String writes all 64 lower-case hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Short writes the first 12 hexadecimal digits, for people.
func (d Digest) Short() string { return hex.EncodeToString(d[:6]) }

// ParseDigest reads what String wrote.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != 2*len(d) {
		return Digest{}, fmt.Errorf("parse digest: %d characters, want %d", len(s), 2*len(d))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("parse digest: %w", err)
	}
	if d.String() != s {
		return Digest{}, fmt.Errorf("parse digest %q: want lower-case digits", s)
	}
	return d, nil
}
