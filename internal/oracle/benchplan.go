package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// defaultBench is where the benchmark's capture lies, from the repository's root.
const defaultBench = "../shared/bench/qwen3_30b_a3b.tp4.rank1.capture.json.gz"

// measured is one line of the table.
type measured struct {
	what   string
	took   time.Duration // fastest
	cpu    time.Duration // least: what the work costs on a core that others share
	allocs uint64
	nbytes uint64 // allocated
}

// measure runs f several times on one thread and keeps the fastest.
func measure(what string, times int, f func() error) (measured, error) {
	m := measured{what: what}
	for i := range times {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		busy, begin := cpuTime(), time.Now()
		if err := f(); err != nil {
			return m, fmt.Errorf("%s: %w", what, err)
		}
		took, cpu := time.Since(begin), cpuTime()-busy
		runtime.ReadMemStats(&after)
		if i == 0 || cpu < m.cpu {
			m.cpu = cpu
		}
		if i == 0 || took < m.took {
			m.took, m.allocs, m.nbytes = took, after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
		}
	}
	return m, nil
}

// cpuTime returns the time that this process has used, on all its threads.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchPlan prints both benchmarks of ../shared/bench beside the peer's measured figures. The capture may be named;
// by default it is the one of ../shared.
func benchPlan(args []string, out io.Writer) error {
	name := defaultBench
	if len(args) > 0 {
		name = args[0]
	}
	runtime.GOMAXPROCS(1)
	raw, err := readFile(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		fmt.Fprintf(out, "skipped: %s is not there\n", name)
	case err != nil:
		return err
	default:
		if err := benchQwen(raw, out); err != nil {
			return err
		}
	}
	return benchKimi(out)
}

// peer holds what was measured for the reference planner on the same kind of machine (bench/README.md).
var peer = map[string]string{
	"encode one rank's layout": "0.55–0.65 s, 4.68 MB", "merge": "1.9–3.1 s (with build)", "plan, one rank, strided": "58.8 s (48.3 s keeping exact segments)",
}

// benchQwen goes through a receiver's whole path for Qwen3-30B-A3B: decode the tables, merge them, plan, prove,
// rebind to the next version.
func benchQwen(raw []byte, out io.Writer) error {
	c, err := plan.DecodeCapture(raw)
	if err != nil {
		return err
	}
	k := &c.Cases[0]
	d, err := c.Dest(k.TP, k.Rank, k.EP)
	if err != nil {
		return err
	}
	d.LayOut(0)
	padUnwritten(&d)
	fmt.Fprintf(out, "\nQwen3-30B-A3B: %d sources on 16 FSDP ranks, tensor parallel 4, rank 1, one goroutine\n", len(c.Sources))
	tw := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "step\ttime\tcpu\tallocations\tMB\twire/needed\tsegments\truns\tstaging MB\tpeer")
	layouts, err := throughWire(fsdp(c.Sources, 16), tw)
	if err != nil {
		return err
	}
	var t *plan.Table
	m, err := measure("merge", 5, func() (err error) { t, err = plan.Merge(layouts); return err })
	if err != nil {
		return err
	}
	m.print(tw, nil)
	tp4 := []plan.Dest{d, d, d, d}
	columns := fsdp(c.Sources, 16)
	inColumns(columns)
	blocks, err := plan.Merge(columns)
	if err != nil {
		return err
	}
	for i := range tp4 {
		tp4[i] = shifted(c, d, i)
	}
	runs := []struct {
		what  string
		t     *plan.Table
		dests []plan.Dest
		o     plan.Options
	}{
		{"plan, one rank, strided", t, []plan.Dest{d}, plan.Options{}},
		{"plan, one rank, flat", t, []plan.Dest{d}, plan.Options{Costs: plan.CostsFlat}},
		{"plan, one rank, flat, served in column blocks", blocks, []plan.Dest{d}, plan.Options{Costs: plan.CostsFlat}},
		{"plan, four ranks, strided", t, tp4, plan.Options{}},
		{"plan, four ranks, flat", t, tp4, plan.Options{Costs: plan.CostsFlat}},
	}
	for _, r := range runs {
		var p *plan.Plan
		m, err := measure(r.what, 5, func() (err error) { p, err = plan.New(r.t, r.dests, r.o); return err })
		if err != nil {
			return err
		}
		m.print(tw, p)
		if r.what == "plan, one rank, strided" {
			if err := benchRebind(p, tw); err != nil {
				return err
			}
		}
	}
	return tw.Flush()
}

// benchRebind measures the next version: with the layouts known, and with one rank's laid out anew.
func benchRebind(p *plan.Plan, tw io.Writer) error {
	m, err := measure("rebind, same layouts", 5, func() error { _, err := p.Rebind(p.Table()); return err })
	if err != nil {
		return err
	}
	m.print(tw, nil)
	return nil
}

// throughWire sends the layouts through the codec of the control plane and returns what comes out.
func throughWire(layouts []*plan.Layout, tw io.Writer) ([]*plan.Layout, error) {
	blobs := make([][]byte, len(layouts))
	total := 0
	m, err := measure("encode one rank's layout", 5, func() (err error) { blobs[0], err = messages.EncodeLayout(onWire(layouts[0])); return err })
	if err != nil {
		return nil, err
	}
	m.print(tw, nil)
	for i := range layouts {
		if blobs[i], err = messages.EncodeLayout(onWire(layouts[i])); err != nil {
			return nil, err
		}
		total += len(blobs[i])
	}
	out := make([]*plan.Layout, len(layouts))
	what := fmt.Sprintf("decode all %d, %.2f MB", len(layouts), float64(total)/1e6)
	m, err = measure(what, 5, func() error {
		for i := range blobs {
			l, err := messages.DecodeLayout(blobs[i])
			if err != nil {
				return err
			}
			out[i] = offWire(l)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.print(tw, nil)
	return out, nil
}

// onWire and offWire convert between the codec's layout and the planner's: the same columns.
func onWire(l *plan.Layout) *messages.Layout {
	m := &messages.Layout{
		Rank: l.Rank, Regions: l.Regions, Names: l.Names, ShapeEnd: l.ShapeEnd, Shapes: l.Shapes,
		Source: l.Source, Region: l.Region, Offset: l.Offset, Box: l.Box, Stride: l.Stride,
	}
	for _, d := range l.DTypes {
		m.DTypes = append(m.DTypes, messages.DType(d))
	}
	return m
}

// offWire takes a layout over as pkg/refit does, column by column.
func offWire(m *messages.Layout) *plan.Layout {
	l := &plan.Layout{
		Rank: m.Rank, Regions: m.Regions, Names: m.Names, ShapeEnd: m.ShapeEnd, Shapes: m.Shapes,
		Source: m.Source, Region: m.Region, Offset: m.Offset, Box: m.Box, Stride: m.Stride,
	}
	for _, d := range m.DTypes {
		l.DTypes = append(l.DTypes, plan.DType(d))
	}
	return l
}

// padUnwritten marks parameters that the capture leaves partly unwritten. The benchmark's capture spreads
// q, k and v of each layer over two parameters of full size, which the planner would refuse as holes.
func padUnwritten(d *plan.Dest) {
	written := make([]int64, len(d.Params))
	for i := range d.Copies {
		written[d.Copies[i].Param] += plantest.Nelems(d.Copies[i].Shape)
	}
	for i := range d.Params {
		d.Params[i].Padded = written[i] < plantest.Nelems(d.Params[i].Shape)
	}
}

// print writes one row: time of the processor and of the wall, bytes and allocations, and what the plan reads.
func (m measured) print(w io.Writer, p *plan.Plan) {
	fmt.Fprintf(w, "%s\t%.1f ms\t%.1f ms\t%d\t%.1f", m.what, float64(m.took.Microseconds())/1000, float64(m.cpu.Microseconds())/1000, m.allocs, float64(m.nbytes)/1e6)
	if p != nil {
		s := p.Stats()
		fmt.Fprintf(w, "\t%.3f\t%d\t%d\t%.1f", float64(s.Wire)/float64(s.Needed), s.Segments, s.Runs, float64(s.StagingPeak)/1e6)
	} else {
		fmt.Fprint(w, "\t\t\t\t")
	}
	theirs := peer[m.what]
	if strings.HasPrefix(m.what, "decode all") {
		theirs = "4.65 s"
	}
	fmt.Fprintf(w, "\t%s\n", theirs)
}

// fsdp cuts sources by rows in ceil-sized pieces, each rank's back to back in one region.
func fsdp(sources []plan.CaptureSource, world int) []*plan.Layout {
	var names []string
	var dtypes []plan.DType
	var shapeEnd []uint32
	var shapes []int64
	for i := range sources {
		s := &sources[i]
		names = append(names, s.Name)
		dtypes = append(dtypes, s.DType)
		shapes = append(shapes, s.Shape...)
		shapeEnd = append(shapeEnd, uint32(len(shapes)))
	}
	out := make([]*plan.Layout, world)
	for r := range out {
		l := &plan.Layout{Rank: r, Names: names, DTypes: dtypes, ShapeEnd: shapeEnd, Shapes: shapes}
		at := int64(0)
		for i := range sources {
			box := chunks(sources[i].Shape, 0, world, 0)[r]
			l.Source = append(l.Source, uint32(i))
			l.Region = append(l.Region, 0)
			l.Offset = append(l.Offset, at)
			l.Box = append(l.Box, box...)
			at += plantest.Nelems(plantest.Sizes(box)) * sources[i].DType.Size()
		}
		l.Regions = []int64{at}
		out[r] = l
	}
	return out
}

// inColumns lays each 2-d shard out in sixteen blocks of columns, as a publisher of snapshots may.
func inColumns(layouts []*plan.Layout) {
	for _, l := range layouts {
		old := *l
		l.Source, l.Region, l.Offset, l.Box = nil, nil, nil, nil
		at, offset := 0, int64(0)
		for k, s := range old.Source {
			from := uint32(0)
			if s > 0 {
				from = old.ShapeEnd[s-1]
			}
			shape := old.Shapes[from:old.ShapeEnd[s]]
			box := old.Box[at : at+2*len(shape)]
			at += 2 * len(shape)
			n := int64(1)
			if len(shape) == 2 && shape[1]%16 == 0 {
				n = 16
			}
			for c := range n {
				b := append([]int64(nil), box...)
				if n > 1 {
					b[2], b[3] = c*shape[1]/n, (c+1)*shape[1]/n
				}
				l.Source = append(l.Source, s)
				l.Region = append(l.Region, old.Region[k])
				l.Offset = append(l.Offset, offset)
				l.Box = append(l.Box, b...)
				offset += plantest.Nelems(plantest.Sizes(b)) * old.DTypes[s].Size()
			}
		}
	}
}

// shifted makes the destination of another tensor-parallel rank out of rank 1's: what is narrowed at
// 1*length there is narrowed at rank*length here.
func shifted(c *plan.Capture, d plan.Dest, rank int) plan.Dest {
	out := d
	out.Rank = rank
	out.Copies = append([]plan.Copy(nil), d.Copies...)
	seen := map[*plan.Op][]plan.Op{}
	for i := range out.Copies {
		ops := out.Copies[i].Ops
		if len(ops) == 0 {
			continue
		}
		moved, ok := seen[&ops[0]]
		if !ok {
			moved = make([]plan.Op, len(ops))
			for k, op := range ops {
				moved[k] = op
				if op.Name == "narrow" && len(op.Args) == 3 && op.Args[1].Int == op.Args[2].Int {
					moved[k].Args = append([]plan.Arg(nil), op.Args...)
					moved[k].Args[1].Int = int64(rank) * op.Args[2].Int
				}
			}
			seen[&ops[0]] = moved
		}
		out.Copies[i].Ops = moved
	}
	return out
}
