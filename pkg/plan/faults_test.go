package plan_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// Each test here is a kind of fault that users of such systems reported, told as what must happen instead.
//
//	modelexpress #639, #650             TestRawRowsOfFusedHeads
//	Awex #117                           TestFusedLayoutAgainstDense
//	slime #2280                         TestShardBeyondShape
//	slime #1673                         TestUnknownNames
//	slime #1799                         TestReplicasReadOnce for types; digests: pkg/refit, TestContradictingReplicasAreRefused
//	NeMo-RL #2471                       TestSharedEmbeddingOnTwoStages
//	modelexpress #635                   TestReplicasReadOnce
//	torchtitan #4593, cosmos-rl #11     TestUnevenAndEmptyShards
//	modelexpress #762, torchstore #177  TestZeroBytes
//	verl #5779, #5952                   TestLargerThanTheBudget
//	prime-rl #3524                      TestLossyCastsByName
//	mbridge #159                        TestIntegersAreNeverCast
//	AReaL #1439                         TestBytesBeyondRegion
//	sglang #31213, vllm #50761          TestRecordedTypeDiffers
//	molt #26, vllm #51665               TestTiedSourceCrossesOnce; groups of a table: pkg/messages, TestGroupsChangeTogether
//	vllm #28425                         pkg/messages, TestGroupsChangeTogether

// holding makes a world where each rank holds the given boxes of one source.
func holding(name string, dt plan.DType, shape []int64, boxes map[int][][]int64) *plantest.World {
	w := &plantest.World{}
	for rank := range 64 {
		for _, b := range boxes[rank] {
			w.AddShard(rank, name, dt, shape, b, nil, plantest.Nelems(plantest.Sizes(b))*dt.Size())
		}
	}
	return w
}

func merged(t *testing.T, w *plantest.World) *plan.Table {
	t.Helper()
	tab, err := plan.Merge(w.Layouts)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// want is a destination of one packed parameter for each copy given; copies with equal names share one.
func want(params []plan.Param, copies ...plan.Copy) plan.Dest {
	d := plan.Dest{Params: params, Copies: copies}
	d.LayOut(0)
	return d
}

// whole copies a source into a parameter of the same shape.
func whole(source string, param int, shape ...int64) plan.Copy {
	return plan.Copy{Source: source, Param: param, Shape: shape, Stride: plantest.RowMajor(shape)}
}

// rows copies rows [lo, hi) of a 2-d source to a row of a parameter with as many columns.
func rows(source string, param int, lo, hi, cols, at int64) plan.Copy {
	c := whole(source, param, hi-lo, cols)
	c.Ops = []plan.Op{plantest.Op("narrow", 0, lo, hi-lo)}
	c.Offset = at * cols
	return c
}

// perform plans, performs, and returns the arenas.
func perform(t *testing.T, w *plantest.World, tab *plan.Table, o plan.Options, full map[string][]byte, dests ...plan.Dest) (*plan.Plan, [][]byte) {
	t.Helper()
	p, err := plan.New(tab, dests, o)
	if err != nil {
		t.Fatal(err)
	}
	w.Load(tab, func(i int) []byte { return full[tab.Name(i)] })
	var arenas [][]byte
	for _, d := range dests {
		n := int64(0)
		for _, q := range d.Params {
			if q.Excluded == "" {
				n = max(n, q.Offset+plantest.Nelems(q.Shape)*q.DType.Size())
			}
		}
		arenas = append(arenas, make([]byte, n))
	}
	if err := w.Perform(p, arenas); err != nil {
		t.Fatal(err)
	}
	return p, arenas
}

// refusal plans, wants a refusal for the given reason, and that it names all of words.
func refusal(t *testing.T, tab *plan.Table, o plan.Options, reason error, dests []plan.Dest, words ...string) {
	t.Helper()
	_, err := plan.New(tab, dests, o)
	says(t, err, reason, words...)
}

func says(t *testing.T, err, reason error, words ...string) {
	t.Helper()
	if !errors.Is(err, reason) {
		t.Fatalf("got %v, expected %v", err, reason)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not name %q", err, w)
		}
	}
}

// A trainer cuts a fused tensor by raw rows, inside heads: each rank's rows are boxes of q, k and v.
func TestRawRowsOfFusedHeads(t *testing.T) {
	t.Parallel()
	const cols, q, kv = 4, 64, 2 // one row a head
	full := map[string][]byte{"q": plantest.Bytes(q*cols, 1), "k": plantest.Bytes(kv*cols, 2), "v": plantest.Bytes(kv*cols, 3)}
	for _, tp := range []int64{1, 2, 3, 5, 8} {
		w := &plantest.World{}
		total := int64(q + 2*kv)
		each := (total + tp - 1) / tp
		at := int64(0)
		for _, s := range []struct {
			name string
			n    int64
		}{{"q", q}, {"k", kv}, {"v", kv}} {
			for r := range tp {
				lo, hi := max(r*each, at)-at, min((r+1)*each, at+s.n)-at
				if lo < hi {
					w.AddShard(int(r), s.name, plan.U8, []int64{s.n, cols}, []int64{lo, hi, 0, cols}, nil, (hi-lo)*cols)
				}
			}
			at += s.n
		}
		d := want([]plan.Param{{Name: "qkv", DType: plan.U8, Shape: []int64{total, cols}}},
			rows("q", 0, 0, q, cols, 0), rows("k", 0, 0, kv, cols, q), rows("v", 0, 0, kv, cols, q+kv))
		_, got := perform(t, w, merged(t, w), plan.Options{}, full, d)
		if !bytes.Equal(got[0], bytes.Join([][]byte{full["q"], full["k"], full["v"]}, nil)) {
			t.Errorf("tensor parallel %d: other bytes", tp)
		}
	}
}

// A fused tensor laid out [q; kv] must not be cut by a generic chunk of dimension 0: the declared layout
// is compared with a dense reference at every size.
func TestFusedLayoutAgainstDense(t *testing.T) {
	t.Parallel()
	const cols, q, kv = 3, 16, 8
	full := plantest.Bytes((q+2*kv)*cols*2, 4)
	for _, tp := range []int64{1, 2, 4, 8} {
		w := holding("qkv", plan.BF16, []int64{q + 2*kv, cols}, map[int][][]int64{0: {{0, 13, 0, cols}}, 1: {{13, 32, 0, cols}}})
		tab := merged(t, w)
		for r := range tp {
			nq, nkv := q/tp, int64(kv)/tp
			d := want([]plan.Param{{Name: "qkv", DType: plan.BF16, Shape: []int64{nq + 2*nkv, cols}}},
				rows("qkv", 0, r*nq, (r+1)*nq, cols, 0),
				rows("qkv", 0, q+r*nkv, q+(r+1)*nkv, cols, nq),
				rows("qkv", 0, q+kv+r*nkv, q+kv+(r+1)*nkv, cols, nq+nkv))
			_, got := perform(t, w, tab, plan.Options{}, map[string][]byte{"qkv": full}, d)
			var ref []byte
			for _, part := range [][2]int64{{r * nq, nq}, {q + r*nkv, nkv}, {q + kv + r*nkv, nkv}} {
				ref = append(ref, full[part[0]*cols*2:(part[0]+part[1])*cols*2]...)
			}
			if !bytes.Equal(got[0], ref) {
				t.Errorf("tensor parallel %d, rank %d: other bytes", tp, r)
			}
		}
	}
}

// A sharded tensor announced as full is refused before a byte moves, with its box and rank.
func TestShardBeyondShape(t *testing.T) {
	t.Parallel()
	w := holding("w", plan.F32, []int64{8, 4}, map[int][][]int64{0: {{0, 4, 0, 4}}, 3: {{4, 12, 0, 4}}})
	_, err := plan.Merge(w.Layouts)
	says(t, err, plan.ErrLayout, `"w"`, "[4:12, 0:4]", "ranks [3]", "size 8")
}

// Names are compared as sets at plan time.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	tab := merged(t, holding("model.w", plan.U8, []int64{4}, map[int][][]int64{0: {{0, 4}}}))
	refusal(t, tab, plan.Options{}, plan.ErrUnknownSource, []plan.Dest{want([]plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{4}}}, whole("w", 0, 4))}, `"w"`, `"p"`)
	bad := whole("model.w", 7, 4)
	refusal(t, tab, plan.Options{}, plan.ErrUnknownParam, []plan.Dest{want(nil, bad)}, "parameter 7 of 0")
	d := want([]plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{4}}}, whole("model.w", 0, 4))
	d.Alias = map[string]string{"head": "nobody"}
	refusal(t, tab, plan.Options{}, plan.ErrUnknownParam, []plan.Dest{d}, `"nobody"`, `"head"`)
	if got := plan.Unread(tab, []plan.Dest{want(nil)}); fmt.Sprint(got) != "[model.w]" {
		t.Errorf("unread sources: got %v", got)
	}
}

// Equal replicas are alternatives, read once, the load spread; another type is a conflict of both ranks.
func TestReplicasReadOnce(t *testing.T) {
	t.Parallel()
	boxes := map[int][][]int64{}
	for r := range 8 {
		boxes[r] = [][]int64{{0, 64, 0, 16}}
	}
	w := &plantest.World{}
	d := plan.Dest{}
	full := map[string][]byte{}
	for i := range 16 {
		name := fmt.Sprintf("norm%d", i)
		for r := range 8 {
			w.AddShard(r, name, plan.BF16, []int64{64, 16}, boxes[r][0], nil, 2048)
		}
		full[name] = plantest.Bytes(2048, int64(i))
		d.Params = append(d.Params, plan.Param{Name: name, DType: plan.BF16, Shape: []int64{64, 16}})
		d.Copies = append(d.Copies, whole(name, i, 64, 16))
	}
	d.LayOut(0)
	tab := merged(t, w)
	p, _ := perform(t, w, tab, plan.Options{}, full, d)
	if s := p.Stats(); s.Wire != 16*2048 || s.Needed != s.Wire || s.Ranks != 8 {
		t.Errorf("read %d of %d bytes from %d ranks, expected each once from all 8", s.Wire, s.Needed, s.Ranks)
	}
	if n := len(tab.Replicas(0)); n != 1 || len(tab.Replicas(0)[0]) != 8 {
		t.Errorf("replicas: %d groups", n)
	}
	other := holding("norm0", plan.F32, []int64{64, 16}, map[int][][]int64{9: {{0, 64, 0, 16}}})
	_, err := plan.Merge(append(w.Layouts, other.Layouts...))
	says(t, err, plan.ErrConflict, `"norm0"`, "ranks [0 9]", "BF16", "F32")
}

// A shared embedding that the first and the last pipeline stage hold is no error: both serve, and when one of
// them goes its bytes come from the other.
func TestSharedEmbeddingOnTwoStages(t *testing.T) {
	t.Parallel()
	full := plantest.Bytes(32*8*2, 5)
	w := holding("embed", plan.BF16, []int64{32, 8}, map[int][][]int64{0: {{0, 32, 0, 8}}, 3: {{0, 32, 0, 8}}})
	tab := merged(t, w)
	d := want([]plan.Param{{Name: "embed", DType: plan.BF16, Shape: []int64{32, 8}}}, whole("embed", 0, 32, 8))
	p, got := perform(t, w, tab, plan.Options{}, map[string][]byte{"embed": full}, d)
	if s := p.Stats(); s.Wire != int64(len(full)) || !bytes.Equal(got[0], full) {
		t.Errorf("read %d bytes of %d, or others", s.Wire, len(full))
	}
	gone := p.Batch(0).Rank
	q, err := p.Reroute(0, func(rank int) bool { return rank == gone })
	if err != nil || q.Batch(0).Rank == gone {
		t.Errorf("the other stage doesn't stand in: %v", err)
	}
}

// Uneven and empty shards: the logical shape is what was published, never inferred from shards.
func TestUnevenAndEmptyShards(t *testing.T) {
	t.Parallel()
	full := plantest.Bytes(5*3*4, 6)
	w := holding("w", plan.F32, []int64{5, 3}, map[int][][]int64{0: {{0, 2, 0, 3}}, 1: {{2, 4, 0, 3}}, 2: {{4, 5, 0, 3}}, 3: {{5, 5, 0, 3}}})
	tab := merged(t, w)
	d := want([]plan.Param{{Name: "w", DType: plan.F32, Shape: []int64{5, 3}}}, whole("w", 0, 5, 3))
	if _, got := perform(t, w, tab, plan.Options{}, map[string][]byte{"w": full}, d); !bytes.Equal(got[0], full) {
		t.Error("other bytes")
	}
	short := holding("w", plan.F32, []int64{5, 3}, map[int][][]int64{0: {{0, 2, 0, 3}}, 2: {{4, 5, 0, 3}}})
	refusal(t, merged(t, short), plan.Options{}, plan.ErrUncovered, []plan.Dest{d}, `"w"`, "[2:4, 0:3]")
}

// Zero-byte tensors are in the table and are never read.
func TestZeroBytes(t *testing.T) {
	t.Parallel()
	w := holding("none", plan.BF16, []int64{0, 4}, map[int][][]int64{0: {{0, 0, 0, 4}}})
	tab := merged(t, w)
	d := want([]plan.Param{{Name: "none", DType: plan.BF16, Shape: []int64{0, 4}}}, whole("none", 0, 0, 4))
	p, _ := perform(t, w, tab, plan.Options{}, map[string][]byte{"none": nil}, d)
	if i, ok := tab.Find("none"); !ok || tab.DType(i) != plan.BF16 || p.Batches() != 0 {
		t.Errorf("found %t, %d batches", ok, p.Batches())
	}
}

// No tensor is too large for any budget: reads are cut to the batch and the staging.
func TestLargerThanTheBudget(t *testing.T) {
	t.Parallel()
	const n, cols = 1000, 96
	full := plantest.Bytes(n*cols*2, 8)
	w := holding("embed", plan.BF16, []int64{n, cols}, map[int][][]int64{0: {{0, 600, 0, cols}}, 1: {{600, n, 0, cols}}})
	tab := merged(t, w)
	d := want([]plan.Param{{Name: "e", DType: plan.F32, Shape: []int64{n, cols}}}, whole("embed", 0, n, cols))
	o := plan.Options{BatchBytes: 5000, StagingBytes: 3000}
	p, _ := perform(t, w, tab, o, map[string][]byte{"embed": full}, d)
	for i := range p.Batches() {
		if b := p.Batch(i); b.Wire > 5000 || b.Staging > 3000 {
			t.Fatalf("batch %d: %d bytes, staging %d", i, b.Wire, b.Staging)
		}
	}
}

// A served type that differs from the destination's is cast on the way; a loss is refused unless it is
// allowed by name, and named.
func TestLossyCastsByName(t *testing.T) {
	t.Parallel()
	tab := merged(t, holding("router", plan.F32, []int64{4}, map[int][][]int64{0: {{0, 4}}}))
	d := want([]plan.Param{{Name: "layers.0.gate", DType: plan.BF16, Shape: []int64{4}}}, whole("router", 0, 4))
	refusal(t, tab, plan.Options{}, plan.ErrCast, []plan.Dest{d}, "layers.0.gate", "router", "F32 to BF16")
	refusal(t, tab, plan.Options{AllowNarrowing: []string{"layers.1.*"}}, plan.ErrCast, []plan.Dest{d})
	if _, err := plan.New(tab, []plan.Dest{d}, plan.Options{AllowNarrowing: []string{"layers.*.gate"}}); err != nil {
		t.Error(err)
	}
	if _, err := plan.New(tab, []plan.Dest{d}, plan.Options{AllowNarrowing: []string{"["}}); err == nil {
		t.Error("a broken pattern was accepted")
	}
}

// Integers are never cast, whatever is allowed.
func TestIntegersAreNeverCast(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]plan.DType{{plan.I64, plan.BF16}, {plan.BF16, plan.I64}, {plan.Bool, plan.U8}, {plan.I32, plan.I64}, {plan.F32, plan.Bool}} {
		tab := merged(t, holding("table", c[0], []int64{4}, map[int][][]int64{0: {{0, 4}}}))
		d := want([]plan.Param{{Name: "p", DType: c[1], Shape: []int64{4}}}, whole("table", 0, 4))
		refusal(t, tab, plan.Options{AllowNarrowing: []string{"*"}}, plan.ErrCast, []plan.Dest{d}, c[0].String(), c[1].String())
	}
}

// Bytes are elements times element size, checked against the region.
func TestBytesBeyondRegion(t *testing.T) {
	t.Parallel()
	w := &plantest.World{}
	w.AddShard(2, "w", plan.F32, []int64{4, 4}, []int64{0, 4, 0, 4}, nil, 32) // room for bf16 only
	_, err := plan.Merge(w.Layouts)
	says(t, err, plan.ErrRegion, `"w"`, "ranks [2]", "64 bytes", "of 32 bytes")
	l := &plan.Layout{
		Regions: []int64{1 << 62}, Names: []string{"w"}, DTypes: []plan.DType{plan.F32}, ShapeEnd: []uint32{1}, Shapes: []int64{4},
		Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{1<<63 - 5}, Box: []int64{0, 4},
	}
	_, err = plan.Merge([]*plan.Layout{l})
	says(t, err, plan.ErrRegion)
	l.Offset[0], l.Stride = 0, []int64{1 << 62}
	_, err = plan.Merge([]*plan.Layout{l})
	says(t, err, plan.ErrRegion)
}

// A type kept by the receiver is part of the contract: a copy recorded for another one is refused.
func TestRecordedTypeDiffers(t *testing.T) {
	t.Parallel()
	tab := merged(t, holding("bias", plan.F32, []int64{4}, map[int][][]int64{0: {{0, 4}}}))
	c := whole("bias", 0, 4)
	c.DType = plan.F32
	d := want([]plan.Param{{Name: "bias", DType: plan.BF16, Shape: []int64{4}}}, c)
	refusal(t, tab, plan.Options{AllowNarrowing: []string{"*"}}, plan.ErrDType, []plan.Dest{d}, "bias")
}

// Tied embeddings: one source, two parameters, one read.
func TestTiedSourceCrossesOnce(t *testing.T) {
	t.Parallel()
	full := plantest.Bytes(32*8*2, 9)
	w := holding("embed", plan.BF16, []int64{32, 8}, map[int][][]int64{0: {{0, 16, 0, 8}}, 1: {{16, 32, 0, 8}}})
	d := want([]plan.Param{{Name: "embed", DType: plan.BF16, Shape: []int64{32, 8}}, {Name: "head", DType: plan.BF16, Shape: []int64{32, 8}}},
		whole("embed", 0, 32, 8), whole("embed", 1, 32, 8))
	p, got := perform(t, w, merged(t, w), plan.Options{}, map[string][]byte{"embed": full}, d)
	if s := p.Stats(); s.Wire != int64(len(full)) {
		t.Errorf("read %d bytes of %d", s.Wire, len(full))
	}
	if !bytes.Equal(got[0][:len(full)], full) || !bytes.Equal(got[0][d.Params[1].Offset:], full) {
		t.Error("other bytes")
	}
}

// The peers' fault behind all of these: 3.1 of 4.2 MB planned, and nothing said.
func TestHolesAndOverlapsAreNamed(t *testing.T) {
	t.Parallel()
	tab := merged(t, holding("w", plan.U8, []int64{8, 4}, map[int][][]int64{0: {{0, 8, 0, 4}}}))
	params := []plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{8, 4}}}
	refusal(t, tab, plan.Options{}, plan.ErrHole, []plan.Dest{want(params, rows("w", 0, 0, 5, 4, 0), rows("w", 0, 6, 8, 4, 6))}, `"p"`, "[5:6, 0:4]", "bytes [20, 24) of 32")
	refusal(t, tab, plan.Options{}, plan.ErrOverlap, []plan.Dest{want(params, rows("w", 0, 0, 5, 4, 0), rows("w", 0, 4, 8, 4, 4))}, `"p"`, "[4:5, 0:4]", "copy 0", "copy 1")
	d := want(params, rows("w", 0, 0, 5, 4, 0))
	d.Fills = []plan.Fill{{Param: 0, Offset: 20, Shape: []int64{3, 4}, Stride: []int64{4, 1}}}
	if _, err := plan.New(tab, []plan.Dest{d}, plan.Options{}); err != nil {
		t.Error(err)
	}
	d.Fills[0].Offset = 16
	refusal(t, tab, plan.Options{}, plan.ErrOverlap, []plan.Dest{d}, "a fill")
	two := want([]plan.Param{params[0], {Name: "q", DType: plan.U8, Shape: []int64{8, 4}}}, whole("w", 0, 8, 4), whole("w", 1, 8, 4))
	two.Params[1].Offset = 16
	refusal(t, tab, plan.Options{}, plan.ErrOverlap, []plan.Dest{two}, `"q"`, `"p"`)
}

// A parameter that no copy can make is refused with the capture's reason.
func TestExcludedParameter(t *testing.T) {
	t.Parallel()
	tab := merged(t, holding("a_log", plan.F32, []int64{4}, map[int][][]int64{0: {{0, 4}}}))
	params := []plan.Param{{Name: "A", DType: plan.F32, Shape: []int64{4}, Excluded: "stores -exp(A_log)"}}
	if _, err := plan.New(tab, []plan.Dest{want(params)}, plan.Options{}); err != nil {
		t.Error(err)
	}
	refusal(t, tab, plan.Options{}, plan.ErrExcluded, []plan.Dest{want(params, whole("a_log", 0, 4))}, `"A"`, "-exp(A_log)")
}

// Everything that is wrong is told at once, and good copies are not named.
func TestEveryFaultIsTold(t *testing.T) {
	t.Parallel()
	tab := merged(t, holding("w", plan.U8, []int64{8, 4}, map[int][][]int64{0: {{0, 8, 0, 4}}}))
	bad := whole("w", 2, 8, 4)
	bad.Ops = []plan.Op{plantest.Op("t"), plantest.Op("reshape", 8, 4)}
	far := whole("w", 3, 8, 4)
	far.Offset = 1
	d := want([]plan.Param{
		{Name: "good", DType: plan.U8, Shape: []int64{8, 4}},
		{Name: "wide", DType: plan.U8, Shape: []int64{8, 5}},
		{Name: "copies", DType: plan.U8, Shape: []int64{8, 4}},
		{Name: "far", DType: plan.U8, Shape: []int64{8, 4}},
	},
		whole("w", 0, 8, 4), whole("w", 1, 8, 5), bad, far)
	_, err := plan.New(tab, []plan.Dest{d}, plan.Options{})
	var r *plan.Refused
	if !errors.As(err, &r) || len(r.Faults) != 3 {
		t.Fatalf("got %v", err)
	}
	for i, reason := range []error{plan.ErrShape, plan.ErrView, plan.ErrDest} {
		if f := r.Faults[i]; !errors.Is(f, reason) || f.Copy != i+1 {
			t.Errorf("fault %d: %v, expected %v of copy %d", i, f, reason, i+1)
		}
	}
	says(t, err, plan.ErrView, "op 1 reshape", "it would copy")
}
