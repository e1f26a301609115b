package view_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/view"
)

// answer is a line of testdata/torch_ops.txt: a chain, and what torch says to it.
type answer struct {
	line   int
	shape  []int64
	ops    []view.Op
	code   string // the operations as the file writes them
	torch  string // "raises", "copies", or the view
	offset int64
	sizes  []int64
	stride []int64
}

// answers reads the file that torch_ops.py wrote.
func answers(t *testing.T) []answer {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "torch_ops.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []answer
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		parts := strings.Split(lines.Text(), "\t")
		a := answer{line: n, code: parts[1], torch: parts[2]}
		if err := json.Unmarshal([]byte(parts[0]), &a.shape); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		if a.ops, err = plan.DecodeOps([]byte(parts[1])); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		if offset, lists, ok := strings.Cut(a.torch, " "); ok {
			d := json.NewDecoder(strings.NewReader(offset + " " + lists))
			if err := errors.Join(d.Decode(&a.offset), d.Decode(&a.sizes), d.Decode(&a.stride)); err != nil {
				t.Fatalf("line %d: %v", n, err)
			}
		}
		out = append(out, a)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTorch compares every answer of torch, and every refusal, operation by operation.
func TestTorch(t *testing.T) {
	t.Parallel()
	all := answers(t)
	if len(all) < 1500 {
		t.Fatalf("only %d answers", len(all))
	}
	for _, a := range all {
		v, err := view.Replay(a.shape, a.ops)
		var refused *view.Error
		switch {
		case a.torch == "raises":
			if !errors.As(err, &refused) {
				t.Errorf("line %d, %v %s: torch raises; got %s, %v", a.line, a.shape, a.code, v.String(), err)
			}
		case a.torch == "copies":
			if !errors.As(err, &refused) || refused.Reason == view.Raises {
				t.Errorf("line %d, %v %s: torch copies; got %s, %v", a.line, a.shape, a.code, v.String(), err)
			}
		case err != nil:
			t.Errorf("line %d, %v %s: %v; torch says %s", a.line, a.shape, a.code, err, a.torch)
		case !a.same(&v):
			t.Errorf("line %d, %v %s: got %s, torch says %s", a.line, a.shape, a.code, v.String(), a.torch)
		}
	}
}

// same compares a view with torch's. Strides of dimensions of one element mean nothing, and of a view without
// elements only the sizes do.
func (a *answer) same(v *view.View) bool {
	if !slices.Equal(v.Shape[:v.NDim], a.sizes) {
		return false
	}
	if v.Nelems() == 0 {
		return true
	}
	for d, n := range a.sizes {
		if n > 1 && v.Stride[d] != a.stride[d] {
			return false
		}
	}
	return v.Offset == a.offset
}

// TestCopyingIsTheSameElements: where torch refuses a view, or would copy, a chain that may copy must still show the
// elements that the chain of views without the copies would show: contiguous, clone and detach in any place of a
// chain change nothing of what the result holds.
func TestCopyingIsTheSameElements(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, a := range answers(t) {
		if len(a.sizes) == 0 || slices.Contains(a.sizes, 0) {
			continue
		}
		v, err := view.Replay(a.shape, a.ops)
		if err != nil {
			t.Fatal(err)
		}
		for _, between := range []string{"contiguous", "clone", "detach"} {
			chain := append(slices.Clone(a.ops), view.Op{Name: between})
			w, stages, err := view.ReplayCopies(a.shape, chain)
			if err != nil {
				t.Errorf("line %d, %s then %s: %v", a.line, a.code, between, err)
				continue
			}
			if got, want := elements(&w, stages), elements(&v, nil); !slices.Equal(got, want) {
				t.Errorf("line %d, %s then %s: got elements %v, expected %v", a.line, a.code, between, got, want)
			}
			tried++
		}
	}
	if tried < 1000 {
		t.Errorf("only %d chains", tried)
	}
}

// elements lists the source elements that a view shows, following its stages back to the source.
func elements(v *view.View, stages []view.Stage) []int64 {
	out := []int64{v.Offset}
	for d := range v.NDim {
		var next []int64
		for _, at := range out {
			for i := range v.Shape[d] {
				next = append(next, at+i*v.Stride[d])
			}
		}
		out = next
	}
	for i := len(stages) - 1; i >= 0; i-- {
		for k := range out {
			out[k] = before(&stages[i], out[k])
		}
	}
	return out
}

// before finds the element of the tensor that a stage was made of.
func before(s *view.Stage, flat int64) int64 {
	at := make([]int64, len(s.Shape))
	for d := len(s.Shape) - 1; d >= 0; d-- {
		at[d], flat = flat%s.Shape[d], flat/s.Shape[d]
	}
	for _, p := range s.Parts {
		if len(at) > 0 && (at[s.Dim] < p.Lo[s.Dim] || at[s.Dim] >= p.Hi[s.Dim]) {
			continue
		}
		to := p.Offset
		for d, x := range at {
			to += x * p.Stride[d]
		}
		return to
	}
	panic(fmt.Sprint("no part holds ", at))
}

// TestErrorsName: an error says which operation of the chain is at fault, what torch calls it, and why.
func TestErrorsName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shape []int64
		ops   string
		says  string
	}{
		{[]int64{4}, `[["detach",[]],["narrow",[0,3,2]]]`, "op 1 narrow: torch refuses it: start 3 and length 2 of dimension 0 of size 4"},
		{[]int64{2, 3}, `[["t",[]],["contiguous",[]]]`, "op 1 contiguous: it would copy: 0+[3 2]/[1 3] is not contiguous"},
		{[]int64{2, 3}, `[["t",[]],["view",[6]]]`, "op 1 view: torch refuses it: shape [6] does not fit the strides of 0+[3 2]/[1 3]"},
		{[]int64{2, 3}, `[["frobnicate",[]]]`, "op 0 frobnicate: it is not a supported view: unknown operation"},
		{[]int64{2, 3}, `[["as_strided",[[1],[1]]]]`, "op 0 as_strided: it is not a supported view: it may show an element twice, or reinterpret it"},
		{[]int64{2, 3}, `[["chunk",[2]]]`, "op 0 chunk: torch refuses it: the result is a list, and no item is picked"},
		{[]int64{2, 3}, `[["__getitem__",[{"list":[0]}]]]`, "op 0 __getitem__: it would copy: indexing with a list or tensor gathers"},
		{[]int64{2, 3}, `[["view",[{"dtype":"int8"}]]]`, "op 0 view: it is not a supported view: reinterpreting the elements as int8"},
		{[]int64{1, 3}, `[["expand",[2,3]]]`, "op 0 expand: it would copy: expanding to [2 3] shows elements more than once"},
		{[]int64{3}, `[["select",["first",0]]]`, "op 0 select: torch refuses it: argument 0 is not an integer"},
	} {
		ops, err := plan.DecodeOps([]byte(c.ops))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := view.Replay(c.shape, ops); err == nil || err.Error() != c.says {
			t.Errorf("%v %s:\n got %v\nwant %s", c.shape, c.ops, err, c.says)
		}
	}
}

// TestTooManyDimensions: what has more dimensions than a View can hold is refused, however it comes about.
func TestTooManyDimensions(t *testing.T) {
	t.Parallel()
	if _, err := view.Of(make([]int64, view.MaxDims+1)); err == nil {
		t.Error("a source of too many dimensions was taken")
	}
	axes := make([]view.Arg, view.MaxDims)
	for i := range axes {
		axes[i].Kind = view.ArgNewAxis
	}
	ones := make([]int64, view.MaxDims+1)
	for i := range ones {
		ones[i] = 1
	}
	list := view.Arg{Kind: view.ArgInts, Ints: ones}
	for _, op := range []view.Op{
		{Name: "__getitem__", Args: axes},
		{Name: "view", Args: []view.Arg{list}},
		{Name: "expand", Args: []view.Arg{list}},
		{Name: "unflatten", Args: []view.Arg{{}, list}},
	} {
		_, err := view.Replay([]int64{1}, []view.Op{op})
		var refused *view.Error
		if !errors.As(err, &refused) || refused.Reason != view.Unsupported {
			t.Errorf("%s: got %v", op.Name, err)
		}
	}
}
