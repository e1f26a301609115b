package messages

import (
	"fmt"
	"slices"
)

// Endpoint says how to reach the memory of one rank. It changes whenever the
// process restarts.
type Endpoint struct {
	Rank        int
	Host        string // a stable host id, for affinity and same-host reads
	Incarnation string // unique to one life of the process; a newer one fences the older
	Regions     []EndpointRegion
	Access      []Access // in the publisher's order of preference
}

// EndpointRegion is one registered span of memory.
type EndpointRegion struct {
	Base   uint64 // address in the owner's address space
	Nbytes int64
	Device string // "" is host memory, else e.g. "cuda:0"
}

// Access is how one transport reaches an endpoint.
type Access struct {
	Transport string // "tcp", "local", "nixl"
	Agent     string // the transport's name for the endpoint
	Metadata  []byte // opaque to everybody but the transport
}

// Tiles holds the digests of one rank's shards for one version: xxh3-64, seed 0, of
// each tile, all tiles of all shards of the layout in shard order.
type Tiles struct {
	Digests []uint64

	// Bare are the sources of the layout that carry no digests, by index, ascending: memory that is
	// read in place, of which its trainer digests only a part. Their tiles have their places in
	// Digests, as zeros, so that no index depends on who digests what. Nil: all sources carry them.
	Bare []uint32
}

// Carries says whether a source has digests. What has none can't be verified by its readers.
func (t *Tiles) Carries(source uint32) bool {
	_, bare := slices.BinarySearch(t.Bare, source)
	return !bare
}

// checkBare refuses sources that a layout doesn't have.
func (t *Tiles) checkBare(l *Layout) error {
	if n := len(t.Bare); n > 0 && int(t.Bare[n-1]) >= len(l.Names) {
		return fmt.Errorf("source %d of %d is said to carry no digests: %w", t.Bare[n-1], len(l.Names), ErrContradiction)
	}
	return nil
}

// Blob refers to a payload that is stored beside the table, or rides in it.
type Blob struct {
	Digest Digest // of the stored bytes
	Nbytes int64  // stored bytes
	Inline []byte // the bytes themselves; nil: read the blob's chunks
}

// Table is what one rank publishes for one version.
type Table struct {
	Model    string // full model name, free text
	Key      Key
	Rank     int
	World    int
	Layout   Blob
	Endpoint Blob
	Tiles    Blob     // zero digest: the rank publishes no tile digests
	Nbytes   int64    // bytes of all shards
	Regions  []uint32 // region i of the layout is the endpoint's region Regions[i]; nil: the same numbers. So a publisher alternates buffers with one layout and one endpoint
	Base     *Ref     // partial version: what is not Changed equals this exact version's
	Changed  []uint32 // with Base: indices into the layout's sources, ascending
	Grouped  bool     // the layout has groups, which committers check
}

// ManifestRank is what a manifest says of one rank.
type ManifestRank struct {
	Table    Digest // of the table's payload
	Layout   Digest
	Endpoint Digest
	Tiles    Digest // zero: none
	Nbytes   int64  // bytes of all shards
}

// Manifest is the commit: a version exists when its manifest does. It is
// deterministic, so that any number of committers write the same bytes.
type Manifest struct {
	Model string
	Key   Key
	World int
	Ranks []ManifestRank // indexed by rank
	Base  *Ref           // partial version: the only version that its difference may be staged upon
}

// Publication is one rank's part of one version. Its layout must not be changed any
// more once it was published: publish another one instead.
type Publication struct {
	Key      Key
	Rank     int
	World    int
	Layout   *Layout
	Endpoint *Endpoint
	Tiles    *Tiles   // nil: no digests
	Regions  []uint32 // as in Table: where this version's bytes lie among the endpoint's regions; nil: the same numbers

	// Of a partial version. All ranks name the same base; all that a layout holds is
	// served, changed or not, so that a receiver that does not serve the base can stage
	// the whole. A layout may also leave out what did not change.
	Base      *Ref     // the exact version that holds what did not change; Manifest.Ref
	Changed   []string // names of the sources that changed; empty: see BaseTiles
	BaseTiles *Tiles   // digests of the base in this very layout: sources whose digests differ have changed
}

// Version is one assembled version: a manifest and everything that it names.
type Version struct {
	Manifest *Manifest
	Digest   Digest // of the manifest's payload
	Run      RunRecord
	Ranks    []RankVersion     // indexed by rank
	Headers  map[string]string // trace context of the commit
}

// RankVersion is one rank's part of an assembled version.
type RankVersion struct {
	Table    *Table
	Layout   *Layout
	Endpoint *Endpoint
	Tiles    *Tiles // nil: the rank publishes no digests
	// Digests as the manifest has them; equal layout digests mean equal plans.
	Digests ManifestRank

	known knownLayout // of the layout: what took a walk over its shards
}
