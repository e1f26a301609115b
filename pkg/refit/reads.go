package refit

import (
	"slices"
	"sync"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// reads is what the trace is told of the reads from one source rank: one detail span, whatever its lanes and batches are.
type reads struct {
	mu       sync.Mutex
	detail   *tracing.Detail
	lanes    int   // that have not ended
	first    error // of a lane
	nbytes   int64 // in batches that ended well
	segments int64 // of these
	retries  int64 // batches of this rank that were read again, from it or from others
	others   []int // ranks that stood in, sorted
}

// beginReads opens the span of one rank, which the last of its lanes ends. It is called before any lane runs.
func (u *pull) beginReads(rank, lanes int) *reads {
	s := &reads{detail: u.wire.Detail("read", tracing.AttrSource.Int(rank)), lanes: lanes}
	if u.reads == nil {
		u.reads = map[int]*reads{}
	}
	u.reads[rank] = s
	return s
}

// came counts a batch that ended well.
func (s *reads) came(b plan.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nbytes += b.Wire
	s.segments += int64(b.Segments)
}

// again counts a batch that is read again. s is nil for a rank of which nothing was planned to be read.
func (s *reads) again(class Class, how string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retries++
	s.detail.Event(tracing.EventRetry, tracing.AttrRetryHow.String(how), tracing.AttrErrorType.String(string(class)))
}

// standIn notes the ranks of a plan that is executed in this one's place.
func (s *reads) standIn(p *plan.Plan) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range p.Batches() {
		rank := p.Batch(i).Rank
		if at, found := slices.BinarySearch(s.others, rank); !found && len(s.others) < maxStandIns {
			s.others = slices.Insert(s.others, at, rank)
		}
	}
}

// maxStandIns bounds how many ranks a span names that stood in.
const maxStandIns = 16

// end is called by each lane; the last one ends the span.
func (s *reads) end(err error, transport string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = err
	}
	if s.lanes--; s.lanes > 0 {
		return
	}
	s.detail.SetBytes(s.nbytes)
	s.detail.Set(tracing.AttrSegments.Int64(s.segments), tracing.AttrRetries.Int64(s.retries), tracing.AttrTransport.String(transport))
	if len(s.others) > 0 {
		s.detail.Set(tracing.AttrStandIns.IntSlice(s.others))
	}
	s.detail.End(s.first)
}
