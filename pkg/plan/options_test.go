package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// TestOptionsThatMakeNoSense are refused before anything is looked at, and say what is wrong with them.
func TestOptionsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	w := holding("x", plan.U8, []int64{4}, map[int][][]int64{0: {{0, 4}}})
	tab := merged(t, w)
	d := want([]plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{4}}}, whole("x", 0, 4))
	for _, c := range []struct {
		o    plan.Options
		says string
	}{
		{plan.Options{BatchBytes: -1}, "batch -1"},
		{plan.Options{StagingBytes: -5}, "staging -5"},
		{plan.Options{Classic: true, MaxSegmentsPerCopy: -2}, "-2 segments per copy"},
		{plan.Options{AllowNarrowing: []string{"ok.*", "[broken"}}, `"[broken"`},
		{plan.Options{Classic: true, Unchanged: kept(nil).unchanged}, "classic plan knows no base"},
	} {
		if _, err := plan.New(tab, []plan.Dest{d}, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: got %v, expected %q", c.o, err, c.says)
		}
	}
	if _, err := plan.CountClassic(tab, &d, 0); err == nil || !strings.Contains(err.Error(), "at least 1") {
		t.Errorf("a limit of no segments: got %v", err)
	}
}

// TestNothingToDo: no destinations, no copies and no sources are plans, of nothing.
func TestNothingToDo(t *testing.T) {
	t.Parallel()
	empty, err := plan.Merge(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := holding("x", plan.U8, []int64{4}, map[int][][]int64{0: {{0, 4}}})
	for _, c := range []struct {
		tab   *plan.Table
		dests []plan.Dest
	}{
		{empty, nil},
		{empty, []plan.Dest{{Rank: 3}}},
		{merged(t, w), nil},
		{merged(t, w), []plan.Dest{{Params: []plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{0}}}}}},
		{merged(t, w), []plan.Dest{{Params: []plan.Param{{Name: "p", DType: plan.F4, Shape: []int64{4}, Excluded: "packed"}}}}},
	} {
		p, err := plan.New(c.tab, c.dests, plan.Options{})
		if err != nil {
			t.Errorf("%+v: %v", c.dests, err)
			continue
		}
		if s := p.Stats(); s.Wire != 0 || s.Amplification() != 1 || p.Batches() != 0 {
			t.Errorf("%+v: %+v", c.dests, s)
		}
		if err := w.Perform(p, make([][]byte, len(c.dests))); err != nil {
			t.Error(err)
		}
		again, err := p.Rebind(c.tab)
		if err != nil || again != p {
			t.Errorf("rebound to the same table: another plan, %v", err)
		}
	}
}

// TestUnreadNames lists what nobody reads, in the order of the table.
func TestUnreadNames(t *testing.T) {
	t.Parallel()
	w := &plantest.World{}
	for _, name := range []string{"c", "a", "b"} {
		w.AddShard(0, name, plan.U8, []int64{4}, []int64{0, 4}, nil, 4)
	}
	d := want([]plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{4}}}, whole("a", 0, 4), whole("nobody", 0, 4))
	if got := strings.Join(plan.Unread(merged(t, w), []plan.Dest{d}), " "); got != "c b" {
		t.Errorf("got %q, expected c and b", got)
	}
}

// TestRefusalsAreManyErrors: every fault of a refusal is seen by errors.Is and errors.As; the text names the first
// few and counts the others, of which at most a hundred are kept.
func TestRefusalsAreManyErrors(t *testing.T) {
	t.Parallel()
	w := holding("x", plan.U8, []int64{4}, map[int][][]int64{0: {{0, 4}}})
	d := want([]plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{4}}, {Name: "q", DType: plan.F32, Shape: []int64{4}}})
	for range 60 {
		d.Copies = append(d.Copies, whole("nobody", 0, 4), whole("x", 1, 4))
	}
	_, err := plan.New(merged(t, w), []plan.Dest{d}, plan.Options{})
	var r *plan.Refused
	if !errors.As(err, &r) || len(r.Faults) != 100 || r.More != 20 {
		t.Fatalf("got %v", err)
	}
	if !errors.Is(err, plan.ErrUnknownSource) || !errors.Is(err, plan.ErrCast) || errors.Is(err, plan.ErrHole) {
		t.Errorf("%v is not what it is", err)
	}
	var f *plan.Fault
	if !errors.As(err, &f) || f.Copy != 0 || f.Source != "nobody" || f.Rank != 0 {
		t.Errorf("the first fault is %+v", f)
	}
	if s := err.Error(); strings.Count(s, "plan: ") != 5 || !strings.HasSuffix(s, "; and 115 more") {
		t.Errorf("got %q", s)
	}
}

// TestMergersAreFedInOrder: ranks that don't ascend are refused, and named.
func TestMergersAreFedInOrder(t *testing.T) {
	t.Parallel()
	layout := func(rank int) *plan.Layout { return &plan.Layout{Rank: rank} }
	m := plan.NewMerger()
	for _, c := range []struct {
		rank int
		ok   bool
	}{{2, true}, {5, true}, {5, false}, {1, false}} {
		err := m.Add(layout(c.rank))
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, plan.ErrLayout) || !strings.Contains(err.Error(), "follows rank 5")) {
			t.Errorf("rank %d: got %v", c.rank, err)
		}
	}
	if _, err := plan.Merge([]*plan.Layout{layout(4), layout(4)}); !errors.Is(err, plan.ErrLayout) {
		t.Errorf("one rank twice: got %v", err)
	}
}
