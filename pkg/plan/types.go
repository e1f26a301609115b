package plan

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

// Piece is a box of a shard that a batch brings, and where it lies once the batch is read.
type Piece struct {
	Source      int // in the table
	Rank, Shard int
	Lo, Hi      []int64 // source coordinates, elements
	Dest        int     // index of the destination, or Staging
	Off         int64   // bytes to element Lo
	Stride      []int64 // bytes per source dimension
}

// Stats sums a plan up.
type Stats struct {
	Needed      int64 // bytes of shards that the destinations need, each counted once
	Written     int64 // bytes of arenas that copies and fills write
	Kept        int64 // bytes of arenas that stay as the base has them
	Saved       int64 // bytes of shards that would be needed if nothing were kept, beyond Needed
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
