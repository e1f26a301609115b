package plan

import (
	"errors"
	"iter"
)

// Staging as the destination of a segment or piece means the batch's staging memory.
const Staging = -1

// Batch is what is read from one rank in one go.
type Batch struct {
	Rank     int   // source rank to read from
	Wire     int64 // bytes that cross
	Segments int   // strided segments
	Runs     int64 // contiguous runs in all of them: descriptors of a flat transport
	Staging  int64 // bytes of staging; 0: everything lands in the arenas directly
}

// Segment is one strided read: Run bytes, repeated over up to three outer dimensions.
type Segment struct {
	Region    uint32
	Src       int64 // bytes from the region's base
	Dest      int   // index of the destination, or Staging
	Dst       int64 // bytes from the arena's start, or from the staging's
	Run       int64 // bytes
	N         [3]int64
	SrcStride [3]int64 // bytes; dimension 0 is the outermost; unused dimensions have N 1
	DstStride [3]int64
}

// Scatter moves a strided region from a batch's staging to an arena, casting when From differs from To.
// Offsets and strides are in bytes, Shape in elements.
type Scatter struct {
	Src       int64 // bytes from the staging's start
	Dest      int
	Dst       int64 // bytes from the arena's start
	From, To  DType
	Shape     []int64
	SrcStride []int64
	DstStride []int64
	Overflow  Overflow
}

// Overflow says what a cast to float8_e4m3fn does with values beyond its range.
type Overflow uint8

// The overflow rules.
const (
	OverflowFails     Overflow = iota // the scatter fails and names the value
	OverflowSaturates                 // ±448, as torch 2.13 on
	OverflowNaN                       // NaN, as torch up to 2.12
)

// Do performs the scatter. dst is the arena of s.Dest, src the batch's staging.
func (s *Scatter) Do(dst, src []byte) error { return errors.New("plan: not built yet") }

// Piece is a box of a shard that a batch brings, and where it lies once the batch is read.
type Piece struct {
	Source      int // in the table
	Rank, Shard int
	Lo, Hi      []int64 // source coordinates, elements
	Dest        int     // index of the destination, or Staging
	Off         int64   // bytes to element Lo
	Stride      []int64 // bytes per source dimension
}

// FillOp writes a constant to a strided region of an arena.
type FillOp struct {
	Dest          int
	Off           int64   // bytes from the arena's start
	Shape, Stride []int64 // elements, bytes
	Pattern       []byte  // one element, little-endian
}

// Do performs the fill on the arena of f.Dest.
func (f *FillOp) Do(dst []byte) error { return errors.New("plan: not built yet") }

// Stats sums a plan up.
type Stats struct {
	Needed      int64 // bytes of shards that the destinations need, each counted once
	Written     int64 // bytes of arenas that copies and fills write
	Wire        int64 // bytes that cross
	Segments    int64 // strided segments
	Runs        int64 // contiguous runs in them
	ExactRuns   int64 // contiguous runs if every copy were read exactly
	StagingPeak int64 // bytes of the largest batch's staging
	Staged      int64 // bytes that pass through staging
	Batches     int
	Ranks       int // source ranks read from
	Copies      int
	Sources     int   // distinct sources read
	PlanBytes   int64 // memory that the plan holds, about
}

// Plan is the finished answer: what to read, and what to do with it.
type Plan struct{}

// New plans the copies of dests out of t. It refuses, with a *Refused that names every fault, what it
// can't do exactly.
func New(t *Table, dests []Dest, o Options) (*Plan, error) {
	return nil, errors.New("plan: not built yet")
}

// Batches returns the number of batches, in the order in which they are best posted.
func (p *Plan) Batches() int { return 0 }

// Batch returns batch i.
func (p *Plan) Batch(i int) Batch { return Batch{} }

// Segments yields the reads of batch i.
func (p *Plan) Segments(i int) iter.Seq[Segment] { return func(func(Segment) bool) {} }

// Scatters yields what to do with the staging of batch i once it is read. Slices are reused between yields.
func (p *Plan) Scatters(i int) iter.Seq[Scatter] { return func(func(Scatter) bool) {} }

// Pieces yields the boxes of shards that batch i brings. The piece is reused between yields.
func (p *Plan) Pieces(i int) iter.Seq[*Piece] { return func(func(*Piece) bool) {} }

// FillOps returns the constant regions.
func (p *Plan) FillOps() []FillOp { return nil }

// Stats sums the plan up.
func (p *Plan) Stats() Stats { return Stats{} }

// Reroute plans the bytes of one batch anew from ranks that avoid does not name. The new plan writes
// the same destination bytes; the error names what has no replica.
func (p *Plan) Reroute(batch int, avoid func(rank int) bool) (*Plan, error) {
	return nil, errors.New("plan: not built yet")
}
