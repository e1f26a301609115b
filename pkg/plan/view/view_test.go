package view

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func n(v int64) Arg       { return Arg{Int: v} }
func list(v ...int64) Arg { return Arg{Kind: ArgInts, Ints: v} }

// sl makes a slice; missing bounds are given as none.
const none = -1 << 40

func sl(bounds ...int64) Arg {
	a := Arg{Kind: ArgSlice}
	for i, b := range bounds {
		if b == none {
			continue
		}
		a.Has |= HasStart << i
		switch i {
		case 0:
			a.Start = b
		case 1:
			a.Stop = b
		case 2:
			a.Step = b
		}
	}
	return a
}

var (
	dots = Arg{Kind: ArgEllipsis}
	axis = Arg{Kind: ArgNewAxis}
)

func op(name string, args ...Arg) Op { return Op{name, args} }
func ops(list ...Op) []Op            { return list }

// TestReplay holds torch's answers.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shape []int64
		ops   []Op
		want  string
	}{
		{[]int64{4, 6}, nil, "0+[4 6]/[6 1]"},
		{[]int64{}, nil, "0+[]/[]"},
		{[]int64{4, 6}, ops(op("narrow", n(1), n(-2), n(2))), "4+[4 2]/[6 1]"},
		{[]int64{4, 6}, ops(op("narrow", n(-2), n(4), n(0))), "24+[0 6]/[6 1]"},
		{[]int64{4, 6}, ops(op("__getitem__", sl(none, none, 3), sl(-2))), "4+[2 2]/[18 1]"},
		{[]int64{4, 6}, ops(op("__getitem__", sl(3, 1))), "18+[0 6]/[6 1]"},
		{[]int64{4, 6}, ops(op("__getitem__", dots, n(-1))), "5+[4]/[6]"},
		{[]int64{4, 6}, ops(op("__getitem__", axis, n(1), axis, dots)), "6+[1 1 6]/[24 6 1]"},
		{[]int64{4, 6}, ops(op("select", n(1), n(2))), "2+[4]/[6]"},
		{[]int64{5, 6}, ops(op("chunk", n(3), n(0)), op("__getitem__", n(2))), "24+[1 6]/[6 1]"},
		{[]int64{0, 2}, ops(op("chunk", n(3)), op("__getitem__", n(2))), "0+[0 2]/[2 1]"},
		{[]int64{5}, ops(op("split", n(2)), op("__getitem__", n(-1))), "4+[1]/[1]"},
		{[]int64{5}, ops(op("split", list(1, 0, 4)), op("__getitem__", n(2))), "1+[4]/[1]"},
		{[]int64{7}, ops(op("tensor_split", n(3)), op("__getitem__", n(1))), "3+[2]/[1]"},
		{[]int64{7}, ops(op("tensor_split", list(2, 5)), op("__getitem__", n(2))), "5+[2]/[1]"},
		{[]int64{3, 4}, ops(op("unbind", n(1)), op("__getitem__", n(3))), "3+[3]/[4]"},
		{[]int64{2, 3, 4}, ops(op("permute", n(2), n(0), n(1))), "0+[4 2 3]/[1 12 4]"},
		{[]int64{2, 3, 4}, ops(op("permute", list(-1, 0, 1))), "0+[4 2 3]/[1 12 4]"},
		{[]int64{2, 3, 4}, ops(op("movedim", n(0), n(-1))), "0+[3 4 2]/[4 1 12]"},
		{[]int64{2, 3, 4}, ops(op("movedim", list(0, 1), list(2, 0))), "0+[3 4 2]/[4 1 12]"},
		{[]int64{2, 3}, ops(op("t")), "0+[3 2]/[1 3]"},
		{[]int64{2, 3, 4}, ops(op("mT")), "0+[2 4 3]/[12 1 4]"},
		{[]int64{2, 3, 4}, ops(op("T")), "0+[4 3 2]/[1 4 12]"},
		{[]int64{2, 3, 4}, ops(op("transpose", n(0), n(-1))), "0+[4 3 2]/[1 4 12]"},
		{[]int64{4, 6}, ops(op("view", n(2), n(-1), n(3))), "0+[2 4 3]/[12 3 1]"},
		{[]int64{4, 6}, ops(op("t"), op("view", list(2, 3, 2, 2))), "0+[2 3 2 2]/[3 1 12 6]"},
		{[]int64{4, 6}, ops(op("__getitem__", sl(none, none, 2)), op("reshape", list(12))), ""},
		{[]int64{2, 3, 4}, ops(op("flatten", n(1))), "0+[2 12]/[12 1]"},
		{[]int64{}, ops(op("flatten")), "0+[1]/[1]"},
		{[]int64{2, 12}, ops(op("unflatten", n(1), list(3, -1))), "0+[2 3 4]/[12 4 1]"},
		{[]int64{2, 3}, ops(op("ravel")), "0+[6]/[1]"},
		{[]int64{1, 3, 1}, ops(op("squeeze")), "0+[3]/[1]"},
		{[]int64{1, 3, 1}, ops(op("squeeze", n(-1))), "0+[1 3]/[3 1]"},
		{[]int64{1, 3, 1}, ops(op("squeeze", n(1))), "0+[1 3 1]/[3 1 1]"},
		{[]int64{3}, ops(op("unsqueeze", n(-1))), "0+[3 1]/[1 1]"},
		{[]int64{3, 3}, ops(op("diagonal", n(1))), "1+[2]/[4]"},
		{[]int64{1, 3}, ops(op("expand", n(1), n(-1))), "0+[1 3]/[3 1]"},
		{[]int64{3}, ops(op("contiguous"), op("detach"), op("alias")), "0+[3]/[1]"},
		{[]int64{0, 3}, ops(op("view", n(3), n(0))), "0+[3 0]/[1 1]"},
	} {
		v, err := Replay(c.shape, c.ops)
		got := v.String()
		if err != nil {
			got = ""
		}
		if got != c.want {
			t.Errorf("%v %v: got %q (%v), torch says %q", c.shape, c.ops, got, err, c.want)
		}
	}
}

// TestRefused names the op at fault and why.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shape []int64
		ops   []Op
		at    int
		why   Reason
	}{
		{[]int64{4}, ops(op("narrow", n(0), n(3), n(2))), 0, Raises},
		{[]int64{4}, ops(op("narrow", n(1), n(0), n(1))), 0, Raises},
		{[]int64{}, ops(op("narrow", n(0), n(0), n(0))), 0, Raises},
		{[]int64{4}, ops(op("__getitem__", n(4))), 0, Raises},
		{[]int64{4}, ops(op("__getitem__", n(0), n(0))), 0, Raises},
		{[]int64{4}, ops(op("__getitem__", sl(none, none, -1))), 0, Raises},
		{[]int64{4}, ops(op("__getitem__", Arg{Kind: ArgIndex, Ints: []int64{0}})), 0, Copies},
		{[]int64{4}, ops(op("chunk", n(0))), 0, Raises},
		{[]int64{4}, ops(op("detach"), op("chunk", n(2))), 1, Raises},
		{[]int64{4}, ops(op("chunk", n(2)), op("__getitem__", n(2))), 1, Raises},
		{[]int64{4}, ops(op("chunk", n(2)), op("detach")), 1, Raises},
		{[]int64{4}, ops(op("split", list(1, 1))), 0, Raises},
		{[]int64{4}, ops(op("split", n(0))), 0, Raises},
		{[]int64{2, 2}, ops(op("permute", n(0), n(0))), 0, Raises},
		{[]int64{2, 2}, ops(op("permute", n(0))), 0, Raises},
		{[]int64{2, 2, 2}, ops(op("t")), 0, Raises},
		{[]int64{2, 3}, ops(op("view", n(-1), n(-1))), 0, Raises},
		{[]int64{2, 3}, ops(op("view", n(5))), 0, Raises},
		{[]int64{2, 3}, ops(op("t"), op("view", n(6))), 1, Raises},
		{[]int64{2, 3}, ops(op("t"), op("reshape", n(6))), 1, Copies},
		{[]int64{2, 3}, ops(op("t"), op("flatten")), 1, Copies},
		{[]int64{2, 3}, ops(op("t"), op("contiguous")), 1, Copies},
		{[]int64{2, 3}, ops(op("t"), op("ravel")), 1, Copies},
		{[]int64{1, 3}, ops(op("expand", n(2), n(3))), 0, Copies},
		{[]int64{2, 3}, ops(op("expand", n(3), n(3))), 0, Raises},
		{[]int64{3}, ops(op("view", Arg{Kind: ArgText, Text: "int8"})), 0, Unsupported},
		{[]int64{3}, ops(op("unfold", n(0), n(2), n(1))), 0, Unsupported},
		{[]int64{3}, ops(op("frobnicate")), 0, Unsupported},
		{[]int64{3}, ops(op("mul", n(2))), 0, Copies},
		{[]int64{3}, ops(op("index_select", n(0), list(1))), 0, Copies},
		{[]int64{0}, ops(op("view", n(-1), n(0))), 0, Raises},
		{[]int64{3}, ops(op("view", n(1<<40), n(1<<40))), 0, Raises},
	} {
		_, err := Replay(c.shape, c.ops)
		var e *Error
		if !errors.As(err, &e) || e.Op != c.at || e.Reason != c.why {
			t.Errorf("%v %v: got %v, expected op %d to be refused because %s", c.shape, c.ops, err, c.at, c.why)
		}
	}
}

// TestCopiedStages replays chains that reorder elements, stage by stage, against a dense gather.
func TestCopiedStages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shape []int64
		ops   []Op
		want  []int64 // flat indices, row-major
	}{
		{[]int64{2, 3}, ops(op("t"), op("reshape", n(6))), []int64{0, 3, 1, 4, 2, 5}},
		{[]int64{2, 3}, ops(op("t"), op("contiguous"), op("view", n(2), n(3)), op("narrow", n(0), n(1), n(1))), []int64{4, 2, 5}},
		{[]int64{5}, ops(op("index_select", n(0), list(4, 0, 2, 2))), []int64{4, 0, 2, 2}},
		{[]int64{2, 4}, ops(op("index_select", n(1), list(3, 1)), op("t"), op("flatten")), []int64{3, 7, 1, 5}},
		{[]int64{}, ops(op("clone")), []int64{0}},
	} {
		v, stages, err := ReplayCopies(c.shape, c.ops)
		if err != nil {
			t.Errorf("%v %v: %v", c.shape, c.ops, err)
			continue
		}
		got := flat(&v)
		for i := len(stages) - 1; i >= 0; i-- {
			for k, f := range got {
				got[k] = stages[i].before(f)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v %v: got %v, expected %v", c.shape, c.ops, got, c.want)
		}
	}
}

// flat lists the elements of a view.
func flat(v *View) []int64 {
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
	return out
}

// before follows a flat element of the stage to the tensor before it.
func (s *Stage) before(f int64) int64 {
	at := make([]int64, len(s.Shape))
	for d := len(s.Shape) - 1; d >= 0; d-- {
		at[d] = f % s.Shape[d]
		f /= s.Shape[d]
	}
	for _, p := range s.Parts {
		in, to := true, p.Offset
		for d, x := range at {
			in = in && x >= p.Lo[d] && x < p.Hi[d]
			to += x * p.Stride[d]
		}
		if in {
			return to
		}
	}
	panic(fmt.Sprint("no part holds ", at))
}

// FuzzReplay feeds arbitrary chains: no panic, and the law of the package holds for what comes out.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{3, 4, 5, 6}, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Add([]byte{2, 6, 4}, []byte{8, 1, 0, 9, 1, 255, 3, 0, 0, 1, 12, 2, 3, 4})
	names := make([]string, 0, len(table))
	for name := range table {
		names = append(names, name)
	}
	slices.Sort(names)
	f.Fuzz(func(t *testing.T, dims, code []byte) {
		var shape []int64
		for _, d := range dims {
			if len(shape) < 5 {
				shape = append(shape, int64(d%7))
			}
		}
		chain := decodeFuzz(code, names)
		v, err := Replay(shape, chain)
		if err != nil {
			return
		}
		total := int64(1)
		for _, s := range shape {
			total *= s
		}
		seen := map[int64]bool{}
		for _, at := range flat(&v) {
			if at < 0 || at >= total || seen[at] {
				t.Fatalf("%v %v gives %s: element %d of %d, seen before: %t", shape, chain, v.String(), at, total, seen[at])
			}
			seen[at] = true
		}
	})
}

// decodeFuzz makes a chain of bytes: a name, a number of arguments, arguments.
func decodeFuzz(code []byte, names []string) []Op {
	var chain []Op
	next := func() int64 {
		if len(code) == 0 {
			return 0
		}
		b := code[0]
		code = code[1:]
		return int64(int8(b))
	}
	for len(code) > 0 && len(chain) < 8 {
		o := Op{Name: names[int(uint8(next()))%len(names)]}
		for range uint8(next()) % 4 {
			switch uint8(next()) % 6 {
			case 0:
				o.Args = append(o.Args, sl(next(), next(), next()))
			case 1:
				o.Args = append(o.Args, list(next(), next()))
			case 2:
				o.Args = append(o.Args, dots)
			case 3:
				o.Args = append(o.Args, axis)
			default:
				o.Args = append(o.Args, n(next()%8))
			}
		}
		chain = append(chain, o)
	}
	return chain
}

func BenchmarkReplay(b *testing.B) {
	chain := ops(op("narrow", n(0), n(384), n(128)), op("unsqueeze", n(0)), op("unbind", n(0)), op("__getitem__", n(0)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Replay([]int64{2048, 7168}, chain); err != nil {
			b.Fatal(err)
		}
	}
}
