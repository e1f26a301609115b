// Package proof recomputes a destination's arena from checkpoint files and compares every byte.
//
// It exists to disagree with the planner and the data plane, so it shares no arithmetic with them and imports neither. Where they
// resolve views to boxes, segments and strides, it writes out the source index of every single element
// and lets each view operation rearrange that list; where they convert in bulk, it converts one element at a time by the
// definition of rounding. What it takes for granted is the safetensors format and the values of a version (checkpoint.Mutate).
//
// The law it proves of an arena: it holds the capture's parameters and no other, each element of
// each is written by exactly one copy or fill, and its bytes are those that the checkpoint, the version and the capture
// make. A NaN that was converted may be any NaN: frameworks don't define its bits.
package proof

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/safetensors"
)

// Input says what to prove.
type Input struct {
	Arena      string // path of the arena file
	Checkpoint *checkpoint.Checkpoint
	Capture    *capturegen.Capture
	Case       *capturegen.Case // the arena's rank, one of the capture's
	Seed       uint64           // of checkpoint.Mutate
	Version    uint64           // of checkpoint.Mutate
}

// Report is what was compared.
type Report struct {
	Params   int
	Nbytes   int64
	Excluded int // parameters that the capture can't describe, not compared
}

// Difference is the first element of the first parameter that isn't what the checkpoint says.
type Difference struct {
	Arena, Param    string
	Element         int64 // row-major index in the parameter
	Expected, Found []byte
	Others          int // further parameters that differ
}

// Error is one line with both sides' bytes of the element.
func (d *Difference) Error() string {
	return fmt.Sprintf("arena %s: parameter %s, element %d: expected bytes % x, found % x (%d other parameters differ too)",
		d.Arena, d.Param, d.Element, d.Expected, d.Found, d.Others)
}

// Verify recomputes every parameter and compares it with the arena byte for byte. It looks at all of them; the first that
// differs is a *Difference. Other errors mean that the arena or the capture can't be compared at all.
func Verify(ctx context.Context, in Input) (report Report, err error) {
	arena, err := safetensors.Open(in.Arena)
	if err != nil {
		return Report{}, fmt.Errorf("prove arena: %w", err)
	}
	defer func() { err = errors.Join(err, arena.Close()) }()
	if err := sameTensors(arena, in.Case); err != nil {
		return Report{}, fmt.Errorf("prove arena %s: %w", in.Arena, err)
	}
	found, err := compareAll(ctx, arena, in)
	if err != nil {
		return Report{}, fmt.Errorf("prove arena %s: %w", in.Arena, err)
	}
	var first *Difference
	for i := range found {
		if found[i] == nil {
			continue
		}
		if first == nil {
			first = found[i]
		} else {
			first.Others++
		}
	}
	if first != nil {
		return Report{}, first
	}
	for i := range in.Case.Params {
		if in.Case.Params[i].Excluded != "" {
			report.Excluded++
			continue
		}
		t, _ := arena.Find(in.Case.Params[i].Name)
		report.Params++
		report.Nbytes += t.Nbytes
	}
	return report, nil
}

// compareAll compares the parameters, several at a time, and returns each one's difference.
func compareAll(ctx context.Context, arena *safetensors.File, in Input) ([]*Difference, error) {
	found := make([]*Difference, len(in.Case.Params))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0)) // index lists are several times a parameter's size: no more of them than cores
	copies, fills := byParam(in.Case)
	for i := range in.Case.Params {
		p := &in.Case.Params[i]
		if p.Excluded != "" {
			continue
		}
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("parameter %s: %w", p.Name, err)
			}
			want, err := rebuild(p, copies[i], fills[i], in.source)
			if err != nil {
				return fmt.Errorf("parameter %s: %w", p.Name, err)
			}
			t, _ := arena.Find(p.Name)
			found[i] = want.compare(arena.Bytes(t), in.Arena, p.Name)
			return nil
		})
	}
	return found, group.Wait()
}

// byParam sorts a case's copies and fills by the parameters that they write.
func byParam(c *capturegen.Case) ([][]capturegen.Copy, [][]capturegen.Fill) {
	copies, fills := make([][]capturegen.Copy, len(c.Params)), make([][]capturegen.Fill, len(c.Params))
	for _, x := range c.Copies {
		copies[x.Param] = append(copies[x.Param], x)
	}
	for _, x := range c.Fills {
		fills[x.Param] = append(fills[x.Param], x)
	}
	return copies, fills
}

// source returns a source's tensor in the version.
func (in *Input) source(i int) (tensor, error) {
	s := &in.Capture.Sources[i]
	t, ok := in.Checkpoint.Find(s.Name)
	if !ok {
		return tensor{}, fmt.Errorf("source %s is not in the checkpoint %s", s.Name, in.Checkpoint.Dir())
	}
	if t.DType != s.DType || !equal(t.Shape, s.Shape) {
		return tensor{}, fmt.Errorf("source %s: the capture says %s %v, the checkpoint %s %v", s.Name, s.DType, s.Shape, t.DType, t.Shape)
	}
	if in.Version == 0 {
		return tensor{t.DType, t.Shape, t.Bytes}, nil
	}
	b := make([]byte, len(t.Bytes))
	copy(b, t.Bytes)
	checkpoint.Mutate(b, t.DType, t.Name, 0, in.Seed, in.Version)
	return tensor{t.DType, t.Shape, b}, nil
}

// sameTensors compares the arena's header with the case: names, dtypes, shapes. An alias may
// not be a tensor of its own, because it would have storage of its own.
func sameTensors(arena *safetensors.File, c *capturegen.Case) error {
	want := map[string]*capturegen.Param{}
	for i := range c.Params {
		p := &c.Params[i]
		want[p.Name] = p
		if p.Excluded != "" {
			continue
		}
		t, ok := arena.Find(p.Name)
		if !ok {
			return fmt.Errorf("parameter %s is missing", p.Name)
		}
		if t.DType != p.DType || !equal(t.Shape, p.Shape) {
			return fmt.Errorf("parameter %s: expected %s %v, found %s %v", p.Name, p.DType, p.Shape, t.DType, t.Shape)
		}
	}
	for _, t := range arena.Tensors {
		if want[t.Name] == nil {
			return fmt.Errorf("tensor %s is no parameter of tensor parallel %d, rank %d", t.Name, c.TP, c.Rank)
		}
	}
	return nil
}

// equal compares shapes; nil and empty are both 0-d.
func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
