package protocol

// Ref names one exact version. A key alone is not exact: once a version was withdrawn
// and its end has expired, a trainer that goes back to an older checkpoint may commit
// the same step again, with other bytes.
type Ref struct {
	Key      Key
	Manifest Digest // of the manifest's payload, which names all tables by their digests
}

// IsZero says whether r names nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// String writes the key and the beginning of the digest, for people.
func (r Ref) String() string { return r.Key.String() + "@" + r.Manifest.Short() }

// MayStageOn says whether a version with this base may be staged as a difference on top
// of what a receiver serves: only on its base, and only when both digests are known. A
// version without a base (zero) is staged whole and needs nothing below it.
func MayStageOn(base, serving Ref) bool {
	if base.IsZero() {
		return true
	}
	return base == serving && !base.Manifest.IsZero()
}
