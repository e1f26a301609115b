package refit

import (
	"sync"
	"sync/atomic"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/landing"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
)

// looks verifies the tiles of a batch while its bytes land, from the cache of the core that brought them. What it finds it
// keeps until the transfer has ended: a corrupt tile says nothing of the connection, nor that the memory may still be written.
type looks struct {
	u        *pull
	verified atomic.Int64 // bytes
	mu       sync.Mutex
	err      error // the first
}

// lookBytes is about how much is verified at a time: about what a part brings.
const lookBytes = 128 << 10

// watch has the tiles that a piece holds whole verified as they land in mem.
func (l *looks) watch(p *plan.Piece, read *landing.Read, mem []byte) error {
	if len(l.u.checks.of(p.Rank, p.Shard)) == 0 {
		return nil
	}
	row := &l.u.checks.index[p.Rank][p.Shard]
	elsize := plan.DType(l.u.version.Ranks[p.Rank].Layout.DTypes[row.Source]).Size()
	stride := clone(p.Stride) // the plan reuses the piece
	return tiles.Bands(row.Grid, p.Lo, p.Hi, elsize, lookBytes, func(lo, hi []int64) error {
		band := &plan.Piece{Source: p.Source, Rank: p.Rank, Shard: p.Shard, Lo: clone(lo), Hi: clone(hi), Off: p.Off, Stride: stride}
		first, last := int64(0), elsize
		for d := range lo {
			band.Off += (lo[d] - p.Lo[d]) * stride[d]
			span := (hi[d] - lo[d] - 1) * stride[d]
			first, last = first+min(0, span), last+max(0, span)
		}
		read.When(band.Off+first, band.Off+last, func() error { l.look(band, mem); return nil })
		return nil
	})
}

// look verifies a band, unless another was found corrupt.
func (l *looks) look(band *plan.Piece, mem []byte) {
	if l.failed() != nil {
		return
	}
	done := l.u.verify.Work()
	defer done()
	verified, err := l.u.checks.piece(band, mem)
	l.verified.Add(verified)
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err == nil {
			l.err = err
		}
	}
}

func (l *looks) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// batchReads cuts what a batch reads into each memory in parts, and has its tiles looked at as they land.
func (u *pull) batchReads(p *plan.Plan, i int, staging *rdma.Memory, l *looks) (map[*rdma.Memory]*landing.Read, error) {
	regions := u.version.Ranks[p.Batch(i).Rank].Table.Regions
	segments := map[*rdma.Memory][]rdma.Segment{}
	for s := range p.Segments(i) {
		m := u.memory(s.Dest, staging)
		segments[m] = append(segments[m], segment(&s, regions))
	}
	reads := map[*rdma.Memory]*landing.Read{}
	for m, segs := range segments {
		reads[m] = landing.New(segs)
	}
	for piece := range p.Pieces(i) {
		m := u.memory(piece.Dest, staging)
		if reads[m] == nil { // a piece of no bytes
			continue
		}
		if err := l.watch(piece, reads[m], m.Bytes()); err != nil {
			return nil, err
		}
	}
	l.foresee(p, i, staging, reads)
	return reads, nil
}

// foresee has the blocks of the arenas that a batch completes digested as they land, from the cache, too: for the list beside
// the arena. What is moved there out of staging is not there yet then.
func (l *looks) foresee(p *plan.Plan, i int, staging *rdma.Memory, reads map[*rdma.Memory]*landing.Read) {
	blocks := l.u.slot.Foreseen(func(yield func(int, arena.Region) bool) { eachRegion(p, i, yield) })
	if staging != nil {
		return
	}
	for _, b := range blocks {
		read := reads[l.u.slot.Memory(b.File)]
		read.When(b.Lo, b.Hi, func() error {
			done := l.u.verify.Work()
			defer done()
			l.u.slot.Foresee(b)
			return nil
		})
	}
}
