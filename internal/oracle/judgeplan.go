package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
	"github.com/drydock-rl/drydock/pkg/plan/view"
)

// tally counts copies (and parameters that are refused as such) by verdict.
type tally struct {
	right, expected, needless, wrong int
	lines                            []string // what is wrong, the first few
}

// note keeps the first twenty complaints: a planner that is wrong is wrong thousands of times.
func (t *tally) note(format string, args ...any) {
	if len(t.lines) < 20 {
		t.lines = append(t.lines, fmt.Sprintf(format, args...))
	}
}

// print writes the verdict, and reports whether it is a good one.
func (t *tally) print(out io.Writer, name, unit string) bool {
	fmt.Fprintf(out, "%s: %d %s: %d right, %d refused as expected, %d refused needlessly, %d wrong\n",
		name, t.right+t.expected+t.needless+t.wrong, unit, t.right, t.expected, t.needless, t.wrong)
	for _, l := range t.lines {
		fmt.Fprintln(out, "  ", l)
	}
	return t.needless == 0 && t.wrong == 0
}

// judgePlan judges every case of a golden file, and the classic counts where the file has the reference's.
func judgePlan(name string, raw []byte, out io.Writer) (bool, error) {
	var f goldenFile
	if err := decode(raw, goldenSchema, &f); err != nil {
		return false, err
	}
	var t tally
	var classic classicTally
	for i := range f.Cases {
		c := &f.Cases[i]
		j := caseJudge{c: c, fill: f.Fill, t: &t}
		if err := j.judge(); err != nil { // one case that nobody understands leaves the others to be judged
			t.wrong += max(1, len(c.Copies))
			t.note("case %s: %v", c.ID, err)
			continue
		}
		if err := classic.judge(c); err != nil {
			t.wrong++
			t.note("case %s: classic: %v", c.ID, err)
		}
	}
	good := t.print(out, name, "copies")
	return classic.print(out, name) && good, nil
}

// caseJudge plans one case again and again, each time without what was refused, until a plan stands.
type caseJudge struct {
	c    *goldenCase
	fill byte
	t    *tally

	table   *plan.Table
	w       *plantest.World
	dest    plan.Dest
	names   []string
	place   map[string]int   // of each source in the file: its bytes depend on it
	gone    []bool           // copies that were refused
	lost    map[string]error // parameters that were refused as such
	faultOf []error          // per copy
}

// judge goes through a case in the order in which things can be refused: tables, copies, casts without leave, and
// then performs what is left.
func (j *caseJudge) judge() error {
	j.place = map[string]int{}
	for i := range j.c.Sources {
		j.place[j.c.Sources[i].Name] = i
	}
	var err error
	if j.w, err = j.c.world(); err != nil {
		return err
	}
	if j.dest, j.names, err = j.c.dest(true); err != nil {
		return err
	}
	j.gone = make([]bool, len(j.dest.Copies))
	j.faultOf = make([]error, len(j.dest.Copies))
	j.lost = map[string]error{}
	if err := j.merge(); err != nil {
		return err
	}
	j.load()
	if err := j.peel(plan.Options{Overflow: plan.OverflowSaturates}); err != nil {
		return err
	}
	j.verdicts()
	return j.compare()
}

// merge merges the layouts without the sources that are refused; copies of those are refused with them.
func (j *caseJudge) merge() error {
	for {
		t, err := plan.Merge(j.w.Layouts)
		if err == nil {
			j.table = t
			return nil
		}
		var f *plan.Fault
		if !errors.As(err, &f) || f.Source == "" {
			return err
		}
		for i := range j.c.Copies {
			if j.c.Copies[i].Src == f.Source {
				j.gone[i], j.faultOf[i] = true, f
			}
		}
		rest := slices.DeleteFunc(slices.Clone(j.c.Sources), func(s goldenSource) bool { return s.Name == f.Source })
		if len(rest) == len(j.c.Sources) {
			return err
		}
		j.c.Sources = rest
		if j.w, err = j.c.world(); err != nil {
			return err
		}
	}
}

// load writes the sources' bytes into the shards of the ranks.
func (j *caseJudge) load() {
	j.w.Load(j.table, func(source int) []byte {
		t := j.place[j.table.Name(source)]
		i := slices.IndexFunc(j.c.Sources, func(s goldenSource) bool { return s.Name == j.table.Name(source) })
		return j.c.Sources[i].bytes(t, j.table.DType(source))
	})
}

// peel plans, drops what is refused and names it, and plans again, until a plan stands.
func (j *caseJudge) peel(o plan.Options) error {
	for range len(j.dest.Copies) + len(j.dest.Params) + 2 {
		d, which := j.remaining()
		_, err := plan.New(j.table, []plan.Dest{d}, o)
		if err == nil {
			return nil
		}
		var r *plan.Refused
		if !errors.As(err, &r) {
			return err
		}
		if !j.drop(r, which) {
			return fmt.Errorf("a refusal that names nothing: %w", err)
		}
	}
	return errors.New("refusals do not end")
}

// remaining returns the destination without what is gone. Parameters that lost a copy may have holes.
func (j *caseJudge) remaining() (plan.Dest, []int) {
	d := j.dest
	d.Params = slices.Clone(j.dest.Params)
	d.Copies = nil
	var which []int
	for i := range j.dest.Copies {
		c := &j.dest.Copies[i]
		if !j.gone[i] {
			d.Copies = append(d.Copies, *c)
			which = append(which, i)
		} else if c.Param >= 0 {
			d.Params[c.Param].Padded = true
		}
	}
	return d, which
}

// drop notes what a refusal names, as gone: single copies, and for holes and overlaps all copies of the parameter.
// It reports whether there was anything that was not gone yet.
func (j *caseJudge) drop(r *plan.Refused, which []int) bool {
	dropped := false
	for _, f := range r.Faults {
		if errors.Is(f, plan.ErrHole) || errors.Is(f, plan.ErrOverlap) && f.Detail != "" {
			if _, seen := j.lost[f.Param]; !seen {
				j.lost[f.Param] = f
			}
			for i := range j.dest.Copies {
				if !j.gone[i] && j.c.Copies[i].Param == f.Param {
					j.gone[i] = true
					dropped = true
				}
			}
			continue
		}
		if f.Copy < 0 {
			continue
		}
		if i := which[f.Copy]; !j.gone[i] {
			j.gone[i], j.faultOf[i], dropped = true, f, true
		}
	}
	return dropped
}

// verdicts compares what was refused with what should be.
func (j *caseJudge) verdicts() {
	for i := range j.c.Copies {
		k := &j.c.Copies[i]
		q, known := j.c.Params[k.Param]
		bad := known && (q.WrittenTwice > 0 || q.MustFill && q.Unwritten > 0)
		_, lost := j.lost[k.Param]
		err := j.faultOf[i]
		switch {
		case k.Expect == "refused" || k.Expect == "" && !k.PureView:
			j.expectRefusal(i, err)
		case j.mayRefuse(k, err):
			j.t.expected++
			j.gone[i] = k.Cast != "narrowing" // those are judged again, with leave
		case k.Cast == "narrowing" && err == nil && !lost:
			j.t.wrong++
			j.t.note("case %s copy %d: a narrowing cast was not refused", j.c.ID, i)
		case err != nil:
			j.t.needless++
			j.t.note("case %s copy %d: %v", j.c.ID, i, err)
		case bad && lost:
			j.t.expected++
		case lost:
			j.t.needless++
			j.t.note("case %s copy %d: %v", j.c.ID, i, j.lost[k.Param])
		case j.shortened(k.Param): // without the copy that was refused nobody can tell
		case bad:
			j.t.wrong++
			j.t.note("case %s copy %d: parameter %s has %d unwritten and %d twice, and was planned", j.c.ID, i, k.Param, q.Unwritten, q.WrittenTwice)
		case known && q.Covered < q.Needed:
			j.t.wrong++
			j.t.note("case %s copy %d: only %d of %d bytes are held, and it was planned", j.c.ID, i, q.Covered, q.Needed)
		}
	}
}

// mayRefuse reports whether the refusal of a copy that torch makes is right.
func (j *caseJudge) mayRefuse(k *goldenCopy, err error) bool {
	q, known := j.c.Params[k.Param]
	switch {
	case errors.Is(err, plan.ErrView):
		return k.Expect == "view_or_refused"
	case errors.Is(err, plan.ErrCast):
		return k.Cast == "narrowing"
	default:
		return known && q.Covered < q.Needed && errors.Is(err, plan.ErrUncovered)
	}
}

// shortened reports whether some copy into the parameter was refused by itself.
func (j *caseJudge) shortened(param string) bool {
	for i := range j.c.Copies {
		if j.c.Copies[i].Param == param && j.faultOf[i] != nil {
			return true
		}
	}
	return false
}

// expectRefusal checks that the copy was refused, and for the op that is at fault.
func (j *caseJudge) expectRefusal(i int, err error) {
	k := &j.c.Copies[i]
	var op *view.Error
	switch {
	case err == nil:
		j.t.wrong++
		j.t.note("case %s copy %d: not refused (%s)", j.c.ID, i, k.Why)
	case k.RefusedAt != nil && (!errors.As(err, &op) || op.Op != *k.RefusedAt):
		j.t.wrong++
		j.t.note("case %s copy %d: refused at another op than %d (%s): %v", j.c.ID, i, *k.RefusedAt, k.Why, err)
	default:
		j.t.expected++
	}
}

// ways are the options under which every plan must give the same bytes.
func (j *caseJudge) ways() map[string]plan.Options {
	base := plan.Options{AllowNarrowing: []string{"*"}, Overflow: plan.OverflowSaturates}
	ways := map[string]plan.Options{}
	add := func(name string, change func(o *plan.Options)) {
		o := base
		change(&o)
		ways[name] = o
	}
	add("strided", func(*plan.Options) {})
	add("flat", func(o *plan.Options) { o.Costs = plan.CostsFlat })
	add("exact", func(o *plan.Options) { o.Costs = exactCosts })
	add("small batches", func(o *plan.Options) { o.BatchBytes, o.StagingBytes = 100, 64 })
	add("small flat batches", func(o *plan.Options) { o.Costs, o.BatchBytes, o.StagingBytes = plan.CostsFlat, 1000, 200 })
	add("classic", func(o *plan.Options) { o.Classic = true })
	add("classic 4", func(o *plan.Options) { o.Classic, o.MaxSegmentsPerCopy = true, 4 })
	return ways
}

// exactCosts make every byte that nobody needs unaffordable.
var exactCosts = plan.Costs{PerSegment: 1, PerRun: 1, PerByte: 1e9, PerStaged: 0.1, PerScatterRun: 0.1}

// leave plans once more with narrowing casts allowed: what is refused now was only hidden by their refusal.
func (j *caseJudge) leave() error {
	if err := j.peel(plan.Options{AllowNarrowing: []string{"*"}, Overflow: plan.OverflowSaturates}); err != nil {
		return err
	}
	for i := range j.c.Copies {
		k := &j.c.Copies[i]
		if k.Cast != "narrowing" || !j.gone[i] {
			continue
		}
		q := j.c.Params[k.Param]
		bad := q.WrittenTwice > 0 || q.MustFill && q.Unwritten > 0
		if (j.lost[k.Param] == nil || !bad) && (!j.mayRefuse(k, j.faultOf[i]) || errors.Is(j.faultOf[i], plan.ErrCast)) {
			j.t.needless++
			j.t.note("case %s copy %d, with leave to narrow: %v %v", j.c.ID, i, j.faultOf[i], j.lost[k.Param])
		}
	}
	return nil
}

// compare performs what is left in every way, and compares each whole parameter with torch's bytes.
func (j *caseJudge) compare() error {
	if err := j.leave(); err != nil {
		return err
	}
	d, _ := j.remaining()
	whole := map[string]bool{}
	for name := range j.c.Params {
		whole[name] = true
	}
	for i := range j.c.Copies {
		if j.gone[i] {
			whole[j.c.Copies[i].Param] = false
		}
	}
	failed := map[string]string{}
	for way, o := range j.ways() {
		if err := j.performed(way, o, d, whole, failed); err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
	}
	for i := range j.c.Copies {
		k := &j.c.Copies[i]
		switch {
		case j.gone[i] || j.lost[k.Param] != nil:
		case failed[k.Param] != "":
			j.t.wrong++
			j.t.note("case %s copy %d: parameter %s has other bytes than torch's:%s", j.c.ID, i, k.Param, failed[k.Param])
		case k.Cast != "narrowing":
			j.t.right++
		}
	}
	return nil
}

// performed notes the whole parameters that come out wrong when they are read in one way.
func (j *caseJudge) performed(way string, o plan.Options, d plan.Dest, whole map[string]bool, failed map[string]string) error {
	p, err := plan.New(j.table, []plan.Dest{d}, o)
	if err != nil {
		return err
	}
	arena, err := j.arena(p, d)
	if err != nil {
		return err
	}
	for i := range d.Params {
		q := &d.Params[i]
		n := q.DType.Size() * q.Shape[0]
		sum := sha256.Sum256(arena[q.Offset : q.Offset+n])
		if whole[q.Name] && hex.EncodeToString(sum[:]) != j.c.Params[q.Name].SHA256 {
			failed[q.Name] += " " + way
		}
	}
	if way == "exact" {
		j.wireOnce(p, d)
	}
	return nil
}

// wireOnce checks that with exact reads no byte crosses that nobody needs, and none twice.
func (j *caseJudge) wireOnce(p *plan.Plan, d plan.Dest) {
	need := int64(0)
	for i := range j.c.Params {
		need += j.c.Params[i].Needed
	}
	if s := p.Stats(); s.Wire > need && len(d.Copies) == len(j.c.Copies) || s.Wire < s.Needed {
		j.t.wrong++
		j.t.note("case %s: exact reads of %d bytes, %d needed by the plan, %d by the file", j.c.ID, s.Wire, s.Needed, need)
	}
}

// arena performs a plan in a destination whose bytes all are the file's fill before.
func (j *caseJudge) arena(p *plan.Plan, d plan.Dest) ([]byte, error) {
	n := int64(0)
	for i := range d.Params {
		n = max(n, d.Params[i].Offset+d.Params[i].DType.Size()*d.Params[i].Shape[0])
	}
	arena := bytes.Repeat([]byte{j.fill}, int(n))
	return arena, j.w.Perform(p, [][]byte{arena})
}
