package trainer

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/served"
	"github.com/drydock-rl/drydock/internal/shardlayout"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Shards is what one rank holds of a checkpoint, and how it lies in the rank's memory.
type Shards struct {
	source   *checkpoint.Checkpoint
	tensors  []checkpoint.Tensor
	held     shardlayout.Rank
	layout   *messages.Layout // as they are cut from the checkpoint
	asked    served.Asked
	minBlock int64            // bytes; 0: the default. Smaller for tests
	shown    *served.Snapshot // how they lie in served memory
}

// Cut finds the shards of one rank of world trainers.
func Cut(c *checkpoint.Checkpoint, kind shardlayout.Kind, rank, world int, o tiles.Options) (*Shards, error) {
	s := &Shards{source: c, tensors: c.Tensors()}
	sources := make([]shardlayout.Source, len(s.tensors))
	for i, t := range s.tensors {
		size, err := elementBytes(t)
		if err != nil {
			return nil, err
		}
		sources[i] = shardlayout.Source{Name: t.Name, Shape: t.Shape, Size: size}
	}
	ranks, err := shardlayout.Cut(sources, kind, world)
	if err != nil {
		return nil, fmt.Errorf("cut %s for %d trainers: %w", c.Dir(), world, err)
	}
	s.held = ranks[rank]
	if s.layout, err = s.describe(rank, sources, o); err != nil {
		return nil, err
	}
	return s, s.Serve(served.Plain, served.Asked{})
}

// Serve changes how the shards lie in served memory from the next Fill on, for what receivers ask for. It is a new
// generation of the layout: what was filled before keeps the old one.
func (s *Shards) Serve(mode served.Mode, asked served.Asked) error {
	o := mode.Options(asked)
	o.MinBytes = s.minBlock
	shown, err := served.New(s.layout, o)
	if err != nil {
		return err
	}
	s.asked, s.shown = asked, shown
	return nil
}

func elementBytes(t checkpoint.Tensor) (int64, error) {
	d, err := messages.ParseDType(string(t.DType))
	if err != nil {
		return 0, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return d.Size(), nil
}

// describe is the layout to publish: all sources, and this rank's shards of them in one region.
func (s *Shards) describe(rank int, sources []shardlayout.Source, o tiles.Options) (*messages.Layout, error) {
	l := &messages.Layout{Rank: rank, Regions: []int64{s.Nbytes()}}
	for i, t := range s.tensors {
		dtype, err := messages.ParseDType(string(t.DType))
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		l.Names = append(l.Names, t.Name)
		l.DTypes = append(l.DTypes, dtype)
		l.Shapes = append(l.Shapes, t.Shape...)
		l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
		l.Grid = append(l.Grid, served.Grid(t.Name, t.Shape, sources[i].Size, o)...)
	}
	for _, sh := range s.held.Shards {
		l.Source = append(l.Source, uint32(sh.Source))
		l.Region = append(l.Region, 0)
		l.Offset = append(l.Offset, sh.Offset)
		for d := range sh.Lo {
			l.Box = append(l.Box, sh.Lo[d], sh.Hi[d])
		}
	}
	return l, nil
}

// Layout is what the rank publishes of its geometry.
func (s *Shards) Layout() *messages.Layout { return s.shown.Layout() }

// Nbytes is the memory that one version of the shards needs in any layout; at least 1, since a mapping can't be empty.
func (s *Shards) Nbytes() int64 { return max(1, s.held.Nbytes) }

// Fill writes the shards' values of a version to mem, on all cores, and repacks them as they are served. Version 0 is the
// checkpoint's own.
func (s *Shards) Fill(mem []byte, seed, version uint64) error {
	s.fillPlain(mem, seed, version)
	return s.shown.Repack(mem)
}

// fillPlain writes what a trainer holds: shards row-major and packed.
func (s *Shards) fillPlain(mem []byte, seed, version uint64) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(s.held.Shards); i = next.Add(1) - 1 {
				s.fillShard(&s.held.Shards[i], mem, seed, version)
			}
		})
	}
	wg.Wait()
}

func (s *Shards) fillShard(sh *shardlayout.Shard, mem []byte, seed, version uint64) {
	if sh.Nbytes == 0 {
		return
	}
	t := &s.tensors[sh.Source]
	dst := mem[sh.Offset : sh.Offset+sh.Nbytes]
	copyBox(dst, t.Bytes, t.Shape, sh.Lo, sh.Hi)
	checkpoint.MutateBox(dst, t.DType, t.Name, t.Shape, sh.Lo, sh.Hi, seed, version)
}

// copyBox copies the box [lo, hi) of a row-major tensor to dst, packed. Bytes an element follow from the lengths.
func copyBox(dst, src []byte, shape, lo, hi []int64) {
	size := int64(len(src))
	for _, n := range shape {
		size /= n
	}
	stride := make([]int64, len(shape))
	step := size
	for d := len(shape) - 1; d >= 0; d-- {
		stride[d] = step
		step *= shape[d]
	}
	copyRows(dst, src, lo, hi, stride, size)
}

// copyRows copies one dimension after the other and returns how much of dst it filled.
func copyRows(dst, src []byte, lo, hi, stride []int64, size int64) int64 {
	if len(lo) == 0 {
		return int64(copy(dst, src[:size]))
	}
	if len(lo) == 1 {
		return int64(copy(dst, src[lo[0]*size:hi[0]*size]))
	}
	var done int64
	for i := lo[0]; i < hi[0]; i++ {
		done += copyRows(dst[done:], src[i*stride[0]:], lo[1:], hi[1:], stride[1:], size)
	}
	return done
}
