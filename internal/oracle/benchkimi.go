package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"

	"github.com/drydock-rl/drydock/pkg/plan"
)

// A model of the size of Kimi-K2, by arithmetic (bench/README.md): experts only.
const (
	kimiLayers  = 60
	kimiExperts = 384
	kimiWorld   = 256
	kimiWide    = 7168
	kimiNarrow  = 2048
	kimiRank    = 3
)

// kimiNames returns gate, up and down of every expert.
func kimiNames(layers int) []string {
	names := make([]string, 0, layers*kimiExperts*3)
	for l := range layers {
		for e := range kimiExperts {
			for _, p := range []string{"gate_proj", "up_proj", "down_proj"} {
				names = append(names, fmt.Sprintf("model.layers.%d.mlp.experts.%d.%s.weight", l, e, p))
			}
		}
	}
	return names
}

// kimiLayout is one rank's shards: even rows of each tensor, back to back. Ranks share the columns that
// are equal, as a receiver that decodes equal columns once does.
func kimiLayout(rank, world int, names []string, shared *plan.Layout) *plan.Layout {
	l := &plan.Layout{Rank: rank, Names: names}
	if shared != nil {
		l.DTypes, l.ShapeEnd, l.Shapes, l.Source, l.Region = shared.DTypes, shared.ShapeEnd, shared.Shapes, shared.Source, shared.Region
	}
	l.Offset = make([]int64, len(names))
	l.Box = make([]int64, 0, 4*len(names))
	at := int64(0)
	for i := range names {
		rows, cols := int64(kimiNarrow), int64(kimiWide)
		if i%3 == 2 {
			rows, cols = cols, rows
		}
		n := rows / int64(world)
		if shared == nil {
			l.DTypes = append(l.DTypes, plan.BF16)
			l.Shapes = append(l.Shapes, rows, cols)
			l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
			l.Source = append(l.Source, uint32(i))
			l.Region = append(l.Region, 0)
		}
		l.Offset[i] = at
		l.Box = append(l.Box, int64(rank)*n, int64(rank+1)*n, 0, cols)
		at += n * cols * 2
	}
	l.Regions = []int64{at}
	return l
}

// kimiDest is tensor-parallel rank 3 of 16: w13 and w2 of each layer.
func kimiDest(layers int, names []string) plan.Dest {
	const part = kimiNarrow / 16
	narrow := func(dim int64) []plan.Op {
		return []plan.Op{{Name: "narrow", Args: []plan.Arg{{Int: dim}, {Int: kimiRank * part}, {Int: part}}}}
	}
	rows, cols := narrow(0), narrow(1)
	up, upStride := []int64{part, kimiWide}, []int64{kimiWide, 1}
	down, downStride := []int64{kimiWide, part}, []int64{part, 1}
	d := plan.Dest{Rank: kimiRank, Copies: make([]plan.Copy, 0, len(names))}
	for l := range layers {
		w13, w2 := len(d.Params), len(d.Params)+1
		d.Params = append(d.Params,
			plan.Param{Name: fmt.Sprintf("layers.%d.w13", l), DType: plan.BF16, Shape: []int64{kimiExperts, 2 * part, kimiWide}},
			plan.Param{Name: fmt.Sprintf("layers.%d.w2", l), DType: plan.BF16, Shape: []int64{kimiExperts, kimiWide, part}})
		for e := range int64(kimiExperts) {
			at := (l*kimiExperts + int(e)) * 3
			d.Copies = append(d.Copies,
				plan.Copy{Source: names[at], Ops: rows, Param: w13, Offset: e * 2 * part * kimiWide, Shape: up, Stride: upStride},
				plan.Copy{Source: names[at+1], Ops: rows, Param: w13, Offset: (e*2 + 1) * part * kimiWide, Shape: up, Stride: upStride},
				plan.Copy{Source: names[at+2], Ops: cols, Param: w2, Offset: e * kimiWide * part, Shape: down, Stride: downStride})
		}
	}
	d.LayOut(0)
	return d
}

// kimiTable merges one rank's layout after the other, so that the boxes of all never lie in memory at once.
func kimiTable(layers, world int, names []string) (*plan.Table, error) {
	m := plan.NewMerger()
	var shared *plan.Layout
	for r := range world {
		l := kimiLayout(r, world, names, shared)
		if shared == nil {
			shared = l
		}
		if err := m.Add(l); err != nil {
			return nil, err
		}
	}
	return m.Table(), nil
}

// benchKimi plans a model of Kimi-K2's size out of the table of ../shared/bench: merge, plan, and what both hold.
func benchKimi(out io.Writer) error {
	fmt.Fprintf(out, "\nKimi-K2 size: %d sources on %d FSDP ranks, tensor parallel 16, rank %d, one goroutine\n",
		kimiLayers*kimiExperts*3, kimiWorld, kimiRank)
	tw := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "step\ttime\tcpu\tallocations\tMB\twire/needed\tsegments\truns\tstaging MB\tpeer")
	names := kimiNames(kimiLayers)
	var t *plan.Table
	m, err := measure("make layouts and merge", 1, func() (err error) { t, err = kimiTable(kimiLayers, kimiWorld, names); return err })
	if err != nil {
		return err
	}
	m.print(tw, nil)
	d := kimiDest(kimiLayers, names)
	var p *plan.Plan
	if m, err = measure("plan", 2, func() (err error) { p, err = plan.New(t, []plan.Dest{d}, plan.Options{}); return err }); err != nil {
		return err
	}
	m.print(tw, p)
	if err := tw.Flush(); err != nil {
		return err
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	fmt.Fprintf(out, "memory from the system: %d MB\n", mem.Sys>>20)
	runtime.KeepAlive(t)
	return benchGrowth(out)
}

// benchGrowth shows that time grows with what is planned, no faster.
func benchGrowth(out io.Writer) error {
	fmt.Fprintln(out, "\nGrowth (experts of a Kimi-K2 layer; time per segment should stay level)")
	tw := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "layers\tranks\tsources\tsegments\tmerge cpu\tplan cpu\tplan cpu per segment")
	for _, c := range [][2]int{{1, 16}, {2, 16}, {4, 16}, {8, 16}, {4, 1}, {4, 4}, {4, 16}} {
		names := kimiNames(c[0])
		d := kimiDest(c[0], names)
		var t *plan.Table
		var p *plan.Plan
		merge, err := measure("merge", 3, func() (err error) { t, err = kimiTable(c[0], c[1], names); return err })
		if err != nil {
			return err
		}
		m, err := measure("plan", 3, func() (err error) { p, err = plan.New(t, []plan.Dest{d}, plan.Options{}); return err })
		if err != nil {
			return err
		}
		n := p.Stats().Segments
		fmt.Fprintf(tw, "%d\t%d\t%d\t%d\t%.1f ms\t%.1f ms\t%d ns\n", c[0], c[1], len(names), n,
			float64(merge.cpu.Microseconds())/1000, float64(m.cpu.Microseconds())/1000, m.cpu.Nanoseconds()/n)
	}
	return tw.Flush()
}
