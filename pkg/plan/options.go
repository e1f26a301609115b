package plan

import (
	"fmt"
	"path"
)

// Options shape a plan. The zero value plans everything for a strided transport.
type Options struct {
	Classic            bool     // follow the reference planner's rules; for comparison
	MaxSegmentsPerCopy int      // Classic: runs of a copy beyond which its source is pulled whole; 0: 64
	AllowNarrowing     []string // globs of parameter names that may lose precision by a cast
	Overflow           Overflow // of casts to float8_e4m3fn; default: the scatter fails and names the value
	Costs              Costs    // zero: CostsStrided

	// CostsOf tells what reads from a rank cost, where one receiver reaches some ranks by memory and others by
	// a network. nil, or a zero answer: Costs. Replicas that are reached at different costs are no longer
	// alternatives: the cheaper ones serve.
	CostsOf func(rank int) Costs

	BatchBytes   int64 // wire bytes of a batch, about; 0: 32 MiB
	StagingBytes int64 // most staging bytes of one batch, at least 64; 0: 32 MiB

	Select    func(dest int, c *Copy) bool // nil: everything. Copies left out are left out of the proof too
	Unchanged Unchanged                    // nil: everything changed. What it names is kept from the base, and in the proof
	Exclude   func(rank int) bool          // source ranks not to read from
}

// excluded asks for each rank of a table whether it is excluded.
func (o *Options) excluded(t *Table) []bool {
	if o.Exclude == nil {
		return nil
	}
	out := make([]bool, len(t.ranks))
	for i := range t.ranks {
		out[i] = o.Exclude(t.ranks[i].rank)
	}
	return out
}

const (
	defaultBatchBytes   = 32 << 20
	defaultStagingBytes = 32 << 20
	defaultMaxSegments  = 64
)

// validate fills the defaults in and refuses what makes no sense.
func (o *Options) validate() error {
	if o.BatchBytes < 0 || o.StagingBytes < 0 || o.MaxSegmentsPerCopy < 0 {
		return fmt.Errorf("plan: negative option: batch %d, staging %d bytes, %d segments per copy", o.BatchBytes, o.StagingBytes, o.MaxSegmentsPerCopy)
	}
	if o.Classic && o.Unchanged != nil {
		return fmt.Errorf("plan: the classic plan knows no base: it reads everything")
	}
	if o.BatchBytes == 0 {
		o.BatchBytes = defaultBatchBytes
	}
	if o.StagingBytes == 0 {
		o.StagingBytes = defaultStagingBytes
	}
	if o.MaxSegmentsPerCopy == 0 {
		o.MaxSegmentsPerCopy = defaultMaxSegments
	}
	if o.Costs == (Costs{}) {
		o.Costs = CostsStrided
	}
	for _, glob := range o.AllowNarrowing {
		if _, err := path.Match(glob, ""); err != nil {
			return fmt.Errorf("plan: allow-list entry %q: %w", glob, err)
		}
	}
	return nil
}
