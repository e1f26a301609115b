package plan_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// columns copies columns [lo, hi) of a 2-d source into a packed parameter.
func columns(source string, param int, rows, lo, hi int64) plan.Copy {
	c := whole(source, param, rows, hi-lo)
	c.Ops = []plan.Op{plantest.Op("narrow", 1, lo, hi-lo)}
	return c
}

// down is a projection of 256 rows and 1024 columns of bf16, cut by rows over four ranks.
func down() (*plantest.World, map[string][]byte) {
	const n, cols = 256, 1024
	boxes := map[int][][]int64{}
	for r := range int64(4) {
		boxes[int(r)] = [][]int64{{r * n / 4, (r + 1) * n / 4, 0, cols}}
	}
	return holding("down", plan.BF16, []int64{n, cols}, boxes), map[string][]byte{"down": plantest.Bytes(n*cols*2, 11)}
}

func quarter(rank int64) plan.Dest {
	d := want([]plan.Param{{Name: "down", DType: plan.BF16, Shape: []int64{256, 256}}}, columns("down", 0, 256, rank*256, (rank+1)*256))
	d.Rank = int(rank)
	return d
}

// TestReadShapes holds what the cost model chooses for a column slice, by transport and by who else needs it.
func TestReadShapes(t *testing.T) {
	t.Parallel()
	w, full := down()
	tab := merged(t, w)
	four := []plan.Dest{quarter(0), quarter(1), quarter(2), quarter(3)}
	for _, c := range []struct {
		name  string
		costs plan.Costs
		dests []plan.Dest
		wire  int64 // times the bytes needed, at most
		segs  int64
		runs  int64
		stage bool
	}{
		{"strided segments: exact, straight into the arena", plan.CostsStrided, four[1:2], 1, 4, 256, false},
		{"a descriptor a run: one span, all four quarters but the last gap", plan.CostsFlat, four[1:2], 4, 4, 4, true},
		{"a descriptor a run, four ranks: one span serves all", plan.CostsFlat, four, 1, 4, 4, true},
		{"strided segments, four ranks: exact for each", plan.CostsStrided, four, 1, 16, 1024, false},
	} {
		p, got := perform(t, w, tab, plan.Options{Costs: c.costs}, full, c.dests...)
		s := p.Stats()
		needed := int64(len(c.dests)) * 256 * 256 * 2
		if s.Needed != needed || s.Wire > c.wire*needed || s.Wire < c.wire*needed*98/100 || s.Segments != c.segs || s.Runs != c.runs || (s.Staged > 0) != c.stage {
			t.Errorf("%s: needed %d, wire %d, %d segments, %d runs, staged %d", c.name, s.Needed, s.Wire, s.Segments, s.Runs, s.Staged)
		}
		for i, d := range c.dests {
			ref := plantest.NewDense([]int64{256, 1024}).Slice(1, int64(d.Rank)*256, int64(d.Rank+1)*256, 1)
			b := make([]byte, len(got[i]))
			ref.Fill(b, full["down"], 0, []int64{256, 1}, 2)
			if !bytes.Equal(b, got[i]) {
				t.Errorf("%s: destination %d has other bytes", c.name, i)
			}
		}
	}
}

// TestColumnBlocks: a publisher that serves blocks of columns makes a slice a few contiguous runs.
func TestColumnBlocks(t *testing.T) {
	t.Parallel()
	boxes := map[int][][]int64{}
	for r := range int64(4) {
		for c := range int64(16) {
			boxes[int(r)] = append(boxes[int(r)], []int64{r * 64, (r + 1) * 64, c * 64, (c + 1) * 64})
		}
	}
	w := holding("down", plan.BF16, []int64{256, 1024}, boxes)
	p, _ := perform(t, w, merged(t, w), plan.Options{Costs: plan.CostsFlat}, map[string][]byte{"down": plantest.Bytes(256*1024*2, 12)}, quarter(2))
	if s := p.Stats(); s.Wire != s.Needed || s.Runs != 16 {
		t.Errorf("wire %d for %d needed in %d runs", s.Wire, s.Needed, s.Runs)
	}
}

// TestPartlyShared: two ranks need overlapping rows; the common ones cross once.
func TestPartlyShared(t *testing.T) {
	t.Parallel()
	w := holding("kv", plan.U8, []int64{16, 64}, map[int][][]int64{0: {{0, 16, 0, 64}}})
	params := []plan.Param{{Name: "kv", DType: plan.U8, Shape: []int64{8, 64}}}
	a, b := want(params, rows("kv", 0, 0, 8, 64, 0)), want(params, rows("kv", 0, 4, 12, 64, 0))
	p, _ := perform(t, w, merged(t, w), plan.Options{}, map[string][]byte{"kv": plantest.Bytes(1024, 13)}, a, b)
	if s := p.Stats(); s.Needed != 12*64 || s.Wire != 12*64 || s.Written != 16*64 {
		t.Errorf("needed %d, wire %d, written %d", s.Needed, s.Wire, s.Written)
	}
}

// TestExclude: sick ranks are never read from, whatever replicas they hold.
func TestExclude(t *testing.T) {
	t.Parallel()
	all := map[int][][]int64{}
	for r := range 4 {
		all[r] = [][]int64{{0, 64}}
	}
	w := holding("w", plan.U8, []int64{64}, all)
	tab := merged(t, w)
	d := want([]plan.Param{{Name: "w", DType: plan.U8, Shape: []int64{64}}}, whole("w", 0, 64))
	for _, c := range []struct {
		o    plan.Options
		rank int
	}{
		{plan.Options{Exclude: func(r int) bool { return r != 3 }}, 3},
		{plan.Options{Exclude: func(r int) bool { return r == 2 || r == 0 }}, 1},
	} {
		p, err := plan.New(tab, []plan.Dest{d}, c.o)
		if err != nil {
			t.Fatal(err)
		}
		if p.Batches() != 1 || p.Batch(0).Rank != c.rank {
			t.Errorf("read from rank %d, expected %d", p.Batch(0).Rank, c.rank)
		}
	}
	refusal(t, tab, plan.Options{Exclude: func(int) bool { return true }}, plan.ErrUncovered, []plan.Dest{d}, `"w"`)
}

// TestSelect restricts a plan to some copies; what is left out is neither read nor missed, but holes in
// what was asked for in the first place still are.
func TestSelect(t *testing.T) {
	t.Parallel()
	w := holding("w", plan.U8, []int64{8, 4}, map[int][][]int64{0: {{0, 8, 0, 4}}})
	tab := merged(t, w)
	params := []plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{8, 4}}}
	d := want(params, rows("w", 0, 0, 3, 4, 0), rows("w", 0, 3, 8, 4, 3))
	second := plan.Options{Select: func(_ int, c *plan.Copy) bool { return c.Offset > 0 }}
	p, got := perform(t, w, tab, second, map[string][]byte{"w": plantest.Bytes(32, 14)}, d)
	if s := p.Stats(); s.Wire != 20 || !bytes.Equal(got[0][:12], make([]byte, 12)) || !bytes.Equal(got[0][12:], plantest.Bytes(32, 14)[12:]) {
		t.Errorf("read %d bytes: %v", s.Wire, got[0])
	}
	refusal(t, tab, second, plan.ErrHole, []plan.Dest{want(params, rows("w", 0, 0, 2, 4, 0), rows("w", 0, 3, 8, 4, 3))}, "[2:3, 0:4]")
	if _, err := plan.New(tab, []plan.Dest{d}, plan.Options{Select: plan.SelectGlobs([]string{"other*"})(tab, []plan.Dest{d})}); err != nil {
		t.Error(err)
	}
}

// TestBatchesKeepEveryRankBusy: the first batches go to different ranks, and so do the last.
func TestBatchesKeepEveryRankBusy(t *testing.T) {
	t.Parallel()
	w, full := down()
	p, _ := perform(t, w, merged(t, w), plan.Options{BatchBytes: 4096}, full, quarter(0))
	n := p.Batches()
	first, last := map[int]bool{}, map[int]bool{}
	for i := range 4 {
		first[p.Batch(i).Rank] = true
		last[p.Batch(n-1-i).Rank] = true
	}
	if len(first) != 4 || len(last) != 4 {
		t.Errorf("of %d batches the first four read from %d ranks, the last four from %d", n, len(first), len(last))
	}
}

// TestRebind: the same table is the same plan; a rank that lays its shards out anew changes only places.
func TestRebind(t *testing.T) {
	t.Parallel()
	w, full := down()
	tab := merged(t, w)
	d := quarter(1)
	p, before := perform(t, w, tab, plan.Options{}, full, d)
	if q, err := p.Rebind(tab); err != nil || q != p {
		t.Errorf("rebinding to the same table: %v", err)
	}
	moved := &plantest.World{}
	for r := range int64(4) {
		cut := [][]int64{{r * 64, (r + 1) * 64, 0, 1024}}
		if r == 2 {
			cut = [][]int64{{128, 150, 0, 1024}, {150, 192, 0, 1024}}
		}
		moved.AddShard(int(r), "other", plan.U8, []int64{1}, []int64{0, 1}, nil, 1)
		for _, b := range cut {
			moved.AddShard(int(r), "down", plan.BF16, []int64{256, 1024}, b, nil, plantest.Nelems(plantest.Sizes(b))*2)
		}
	}
	next := merged(t, moved)
	q, err := p.Rebind(next)
	if err != nil {
		t.Fatal(err)
	}
	moved.Load(next, func(i int) []byte {
		if b := full[next.Name(i)]; b != nil {
			return b
		}
		return make([]byte, 1)
	})
	after := [][]byte{make([]byte, len(before[0]))}
	if err := moved.Perform(q, after); err != nil {
		t.Fatal(err)
	}
	fresh, err := plan.New(next, []plan.Dest{d}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before[0], after[0]) || q.Describe() != fresh.Describe() {
		t.Error("the rebound plan is not what planning anew gives")
	}
	sick := -1
	avoiding := plan.Options{Exclude: func(r int) bool { return r == sick }}
	twice, _ := down()
	for r := range int64(4) {
		twice.AddShard(int(r)+10, "down", plan.BF16, []int64{256, 1024}, []int64{r * 64, (r + 1) * 64, 0, 1024}, nil, 64*1024*2)
	}
	p, err = plan.New(merged(t, twice), []plan.Dest{d}, avoiding)
	if err != nil {
		t.Fatal(err)
	}
	sick = p.Batch(0).Rank
	if q, err = p.Rebind(merged(t, twice)); err != nil {
		t.Fatal(err)
	}
	for i := range q.Batches() {
		if q.Batch(i).Rank == sick {
			t.Errorf("batch %d still reads from rank %d, which is excluded by now", i, sick)
		}
	}
	gone := merged(t, holding("down", plan.BF16, []int64{256, 1024}, map[int][][]int64{0: {{0, 200, 0, 1024}}}))
	if _, err := p.Rebind(gone); err == nil {
		t.Error("a table with a hole was accepted")
	}
}

// TestReroute: one batch by way of replicas, and the boxes named that have none.
func TestReroute(t *testing.T) {
	t.Parallel()
	w := holding("w", plan.U8, []int64{8, 4}, map[int][][]int64{0: {{0, 8, 0, 4}}, 1: {{0, 3, 0, 4}}, 2: {{3, 8, 0, 2}}})
	tab := merged(t, w)
	d := want([]plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{8, 4}}}, whole("w", 0, 8, 4))
	p, err := plan.New(tab, []plan.Dest{d}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Reroute(0, func(r int) bool { return r == 0 })
	says(t, err, plan.ErrUncovered, `"w"`, "[3:8, 2:4]", "ranks [0]")
	w.AddShard(5, "w", plan.U8, []int64{8, 4}, []int64{3, 8, 2, 4}, nil, 10)
	p, err = plan.New(merged(t, w), []plan.Dest{d}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Reroute(0, func(r int) bool { return r == 0 })
	if err != nil {
		t.Fatal(err)
	}
	if s := q.Stats(); s.Wire != 32 || s.Ranks != 3 {
		t.Errorf("rerouted: %d bytes from %d ranks", s.Wire, s.Ranks)
	}
}

// TestDescribe is the golden of a small plan: every kind of line, byte for byte, twice the same.
func TestDescribe(t *testing.T) {
	t.Parallel()
	w := holding("w", plan.BF16, []int64{4, 6}, map[int][][]int64{0: {{0, 2, 0, 6}}, 1: {{2, 4, 0, 6}}})
	d := want([]plan.Param{{Name: "p", DType: plan.BF16, Shape: []int64{4, 3}}, {Name: "q", DType: plan.F32, Shape: []int64{5, 6}}},
		columns("w", 0, 4, 3, 6), whole("w", 1, 4, 6))
	d.Fills = []plan.Fill{{Param: 1, Offset: 24, Shape: []int64{1, 6}, Stride: []int64{6, 1}, Value: 1}}
	d.Copies[0].Ops = []plan.Op{plantest.Op("narrow", 1, 3, 3)}
	const golden = `plan: 2 batches from 2 ranks, 48 bytes for 48 needed, 2 segments, 2 runs, staging 64
batch 0: rank 0, 24 bytes, 1 segments, staging 64
  read region 0 @0 -> staging @0 run 24
  scatter staging @0 -> 0 @256 BF16>F32 [12] ([2],[4])
  scatter staging @6 -> 0 @0 BF16 [2 3] ([12 2],[6 2])
batch 1: rank 1, 24 bytes, 1 segments, staging 64
  read region 0 @0 -> staging @0 run 24
  scatter staging @0 -> 0 @304 BF16>F32 [12] ([2],[4])
  scatter staging @6 -> 0 @12 BF16 [2 3] ([12 2],[6 2])
fill 0000803f -> 0 @352 [1 6] ([24 4])
`
	for range 2 {
		p, _ := perform(t, w, merged(t, w), plan.Options{}, map[string][]byte{"w": make([]byte, 48)}, d)
		if got := p.Describe(); got != golden {
			t.Errorf("got\n%s\nexpected\n%s", got, golden)
		}
	}
}

// TestExplain: where a parameter's bytes come from, why they are read so, and the picture.
func TestExplain(t *testing.T) {
	t.Parallel()
	w, full := down()
	d := quarter(3)
	d.Alias = map[string]string{"tied": "down"}
	p, _ := perform(t, w, merged(t, w), plan.Options{Costs: plan.CostsFlat}, full, d)
	e, err := p.Explain(0, "tied")
	if err != nil {
		t.Fatal(err)
	}
	text := e.String()
	for _, s := range []string{
		"down BF16[256 256] of destination rank 3", "also known as tied", "source.narrow(1, 768, 256)",
		"rank 2 region 0 @1536: spanning", "64 exact runs would cost",
	} {
		if !strings.Contains(text, s) {
			t.Errorf("%q is not in\n%s", s, text)
		}
	}
	if len(e.Copies) != 1 || len(e.Copies[0].Reads) != 4 {
		t.Errorf("%d copies: %+v", len(e.Copies), e.Copies)
	}
	svg, err := p.Picture(0, "down")
	if err != nil || strings.Count(svg, "<title>") != 4 || !strings.Contains(svg, "rank 3, down") {
		t.Errorf("picture: %v\n%s", err, svg)
	}
	if sum := p.Summary(); !strings.Contains(sum, "spanning") || !strings.Contains(sum, "3.953×") {
		t.Errorf("summary:\n%s", sum)
	}
	for _, name := range []string{"nobody", ""} {
		if _, err := p.Explain(0, name); err == nil {
			t.Errorf("parameter %q was explained", name)
		}
	}
	if _, err := p.Explain(4, "down"); err == nil {
		t.Error("destination 4 was explained")
	}
}

// TestClassicRules: the reference's rule of 64 runs, on and off, refused below 1.
func TestClassicRules(t *testing.T) {
	t.Parallel()
	w, full := down()
	tab := merged(t, w)
	for _, c := range []struct {
		limit       int
		descriptors int64
		bytes       int64
		pulls       string
	}{{255, 4, 524288, "[down]"}, {256, 256, 131072, "[]"}} {
		p, _ := perform(t, w, tab, plan.Options{Classic: true, MaxSegmentsPerCopy: c.limit}, full, quarter(1))
		k := p.Classic()[0]
		if k.DescriptorCount != c.descriptors || k.BytesPlanned != c.bytes || fmt.Sprint(k.FullPulls) != c.pulls || k.ExactDescriptorCount != 256 {
			t.Errorf("limit %d: %+v", c.limit, k)
		}
		if s := p.Stats(); s.Wire != c.bytes {
			t.Errorf("limit %d: %d bytes cross", c.limit, s.Wire)
		}
	}
	d := quarter(1)
	if _, err := plan.CountClassic(tab, &d, 0); err == nil {
		t.Error("a limit of 0 was accepted")
	}
	if _, err := plan.New(tab, []plan.Dest{d}, plan.Options{Classic: true, MaxSegmentsPerCopy: -1}); err == nil {
		t.Error("a limit of -1 was accepted")
	}
}

// TestGrowth: planning grows with what is planned and no faster. Allocations are counted, not time: they
// are the same on a busy machine.
func TestGrowth(t *testing.T) {
	allocs := func(n int, ranks int64) float64 {
		w := &plantest.World{}
		d := plan.Dest{}
		for i := range n {
			name := fmt.Sprintf("w%d", i)
			for r := range ranks {
				w.AddShard(int(r), name, plan.BF16, []int64{64, 64}, []int64{r * 64 / ranks, (r + 1) * 64 / ranks, 0, 64}, nil, 64*64*2)
			}
			d.Params = append(d.Params, plan.Param{Name: name, DType: plan.BF16, Shape: []int64{64, 32}})
			d.Copies = append(d.Copies, columns(name, i, 64, 16, 48))
		}
		d.LayOut(0)
		tab := merged(t, w)
		return testing.AllocsPerRun(3, func() {
			if _, err := plan.New(tab, []plan.Dest{d}, plan.Options{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	one, eight := allocs(200, 4), allocs(1600, 4)
	if eight > 8*one+100 {
		t.Errorf("8 times the tensors: %.0f allocations after %.0f", eight, one)
	}
	few, many := allocs(200, 4), allocs(200, 16)
	if many > 4*few+1000 {
		t.Errorf("4 times the ranks: %.0f allocations after %.0f", many, few)
	}
}

// TestEmptyThingsAreDrawn: parameters without bytes are described, explained and drawn like others.
func TestEmptyThingsAreDrawn(t *testing.T) {
	t.Parallel()
	for _, shape := range [][]int64{{0}, {0, 3}, {3, 0}, {}, {1, 1}} {
		w := &plantest.World{}
		w.AddShard(0, "x", plan.BF16, shape, fullBox(shape), nil, 2)
		d := want([]plan.Param{{Name: "p", DType: plan.BF16, Shape: shape}}, whole("x", 0, shape...))
		p, err := plan.New(merged(t, w), []plan.Dest{d}, plan.Options{})
		if err != nil {
			t.Fatalf("%v: %v", shape, err)
		}
		svg, err := p.Picture(0, "p")
		if err != nil || !strings.Contains(svg, "</svg>") || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%v: %v\n%s", shape, err, svg)
		}
		e, err := p.Explain(0, "p")
		if err != nil || !strings.Contains(e.String(), fmt.Sprint(shape)) || !strings.Contains(p.Summary(), "p") {
			t.Errorf("%v: %v, %v", shape, e, err)
		}
	}
}

// TestStepsThatMeet: two steps of different size show some elements both. Read exactly, each step crosses once,
// however many copies want it.
func TestStepsThatMeet(t *testing.T) {
	t.Parallel()
	w := holding("x", plan.U8, []int64{24}, map[int][][]int64{0: {{0, 24}}})
	var d plan.Dest
	for i, step := range []int64{2, 3, 2, 2} {
		n := 24 / step
		d.Params = append(d.Params, plan.Param{Name: fmt.Sprint("p", i), DType: plan.U8, Shape: []int64{n}})
		d.Copies = append(d.Copies, plan.Copy{Source: "x", Param: i, Ops: []plan.Op{stepped(0, 0, 24, step)}, Shape: []int64{n}, Stride: []int64{1}})
	}
	d.LayOut(0)
	exact := plan.Options{Costs: plan.Costs{PerSegment: 1, PerRun: 1, PerByte: 1e9}}
	p, _ := perform(t, w, merged(t, w), exact, map[string][]byte{"x": plantest.Bytes(24, 2)}, d)
	if s := p.Stats(); s.Wire != 12+8 || s.Needed != 12+8-4 {
		t.Errorf("%d bytes cross for %d needed, expected 20 for 16\n%s", s.Wire, s.Needed, p.Describe())
	}
}
