package capturegen

import (
	"fmt"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// Limits of a decoded capture. Copies are bounded by the length of the text.
const (
	maxTP   = 4096
	maxName = 1024 // bytes
	maxDims = 16
	maxOps  = 64 // of one copy
)

// check proves that positions, names and shapes hang together.
func (c *Capture) check() error {
	seen := map[string]bool{}
	for i, s := range c.Sources {
		if seen[s.Name] {
			return fmt.Errorf("source %s appears twice", s.Name)
		}
		seen[s.Name] = true
		if err := checkTensor(s.Name, s.DType, s.Shape); err != nil {
			return fmt.Errorf("source %d: %w", i, err)
		}
	}
	for i := range c.Cases {
		x := &c.Cases[i]
		if x.TP < 1 || x.TP > maxTP || x.Rank < 0 || x.Rank >= x.TP {
			return fmt.Errorf("case %d: found tensor parallel %d, rank %d, expected a rank below a size of 1 to %d", i, x.TP, x.Rank, maxTP)
		}
		if err := x.check(len(c.Sources)); err != nil {
			return fmt.Errorf("case of tensor parallel %d, rank %d, expert parallel %t: %w", x.TP, x.Rank, x.EP, err)
		}
	}
	return nil
}

// check proves a case against the number of sources that the file has.
func (x *Case) check(sources int) error {
	params := map[string]bool{}
	for _, p := range x.Params {
		if params[p.Name] {
			return fmt.Errorf("parameter %s appears twice", p.Name)
		}
		params[p.Name] = true
		if err := checkTensor(p.Name, p.DType, p.Shape); err != nil {
			return fmt.Errorf("parameter: %w", err)
		}
	}
	for i, y := range x.Copies {
		if y.Source < 0 || y.Source >= sources || len(y.Ops) > maxOps {
			return fmt.Errorf("copy %d: found source %d and %d ops, expected one of %d sources and at most %d ops", i, y.Source, len(y.Ops), sources, maxOps)
		}
		if err := x.checkPlace(y.Param, y.Place); err != nil {
			return fmt.Errorf("copy %d: %w", i, err)
		}
	}
	for i, f := range x.Fills {
		if err := x.checkPlace(f.Param, f.Place); err != nil {
			return fmt.Errorf("fill %d: %w", i, err)
		}
	}
	for other, name := range x.Alias {
		if !params[name] || params[other] {
			return fmt.Errorf("alias %s of %s: expected the second and not the first to be a parameter", other, name)
		}
	}
	return nil
}

// checkTensor accepts what a table can carry: no sub-byte elements.
func checkTensor(name string, dtype safetensors.DType, shape []int64) error {
	if name == "" || len(name) > maxName || len(shape) > maxDims {
		return fmt.Errorf("%.32q of shape %v: expected a name of 1 to %d bytes and at most %d dimensions", name, shape, maxName, maxDims)
	}
	if dtype.Size() == 0 {
		return fmt.Errorf("%s has dtype %q, expected one of whole bytes, like BF16", name, string(dtype))
	}
	if _, err := safetensors.Count(shape); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// checkPlace proves that a place lies inside its parameter.
func (x *Case) checkPlace(param int, p Place) error {
	if param < 0 || param >= len(x.Params) {
		return fmt.Errorf("found parameter %d, expected one of %d", param, len(x.Params))
	}
	to := &x.Params[param]
	if to.Excluded != "" {
		return fmt.Errorf("writes %s, which is excluded (%s)", to.Name, to.Excluded)
	}
	nelems, _ := safetensors.Count(to.Shape) // checked before
	if len(p.Shape) != len(p.Stride) || len(p.Shape) > maxDims || p.Offset < 0 {
		return fmt.Errorf("place in %s: offset %d, shape %v, stride %v don't belong together", to.Name, p.Offset, p.Shape, p.Stride)
	}
	last := p.Offset // the largest element so far; each step is checked before it is taken, so nothing overflows
	for d, extent := range p.Shape {
		if extent == 0 {
			return nil
		}
		if extent < 0 || p.Stride[d] < 0 || p.Stride[d] > 0 && extent-1 > (nelems-last)/p.Stride[d] {
			return fmt.Errorf("place in %s: offset %d, shape %v, stride %v leave its %d elements", to.Name, p.Offset, p.Shape, p.Stride, nelems)
		}
		last += (extent - 1) * p.Stride[d]
	}
	if last >= nelems {
		return fmt.Errorf("place in %s: offset %d, shape %v, stride %v leave its %d elements", to.Name, p.Offset, p.Shape, p.Stride, nelems)
	}
	return nil
}
