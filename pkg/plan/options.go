package plan

// Costs weighs the shapes that a read can take, in nanoseconds. Zero values mean CostsStrided.
type Costs struct {
	PerSegment float64 // posting one segment
	PerRun     float64 // each contiguous run of a segment, on the wire side
	PerByte    float64 // each byte that crosses
	PerStaged  float64 // each byte that is scattered out of staging
}

// CostsStrided suits transports that carry strided segments (tcp, local): a run costs a small copy.
var CostsStrided = Costs{PerSegment: 2000, PerRun: 15, PerByte: 0.5, PerStaged: 0.15}

// CostsFlat suits transports that need one descriptor for each run (nixl).
var CostsFlat = Costs{PerSegment: 1000, PerRun: 5000, PerByte: 0.15, PerStaged: 0.15}

// Options shape a plan. The zero value plans everything for a strided transport.
type Options struct {
	Classic            bool     // follow the reference planner's rules; for comparison
	MaxSegmentsPerCopy int      // Classic: runs of a copy beyond which its source is pulled whole; 0: 64
	AllowNarrowing     []string // globs of parameter names that may lose precision by a cast
	Saturate           bool     // float8_e4m3fn: values beyond its range become ±448 (torch 2.13 on); default: the cast fails
	OverflowToNaN      bool     // float8_e4m3fn: values beyond its range become NaN (torch up to 2.12)
	Costs              Costs    // zero: CostsStrided
	BatchBytes         int64    // wire bytes of a batch, about; 0: 32 MiB
	StagingBytes       int64    // most staging bytes of one batch; 0: 32 MiB

	Select  func(dest int, c *Copy) bool // nil: everything. Copies left out are left out of the proof too
	Exclude func(rank int) bool          // source ranks not to read from
	Prefer  func(rank int) bool          // source ranks to prefer among replicas, such as those of the same host
}
