package plan_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

var rewrite = flag.Bool("plan.rewrite", false, "write testdata/plans/*.txt anew from what the planner says now")

// TestTranscripts plans the scenarios of testdata/plans and compares what is printed with the second half of each
// file, byte for byte. A scenario is a few lines of words; lists are JSON without spaces:
//
//	source NAME TYPE SHAPE                               a tensor
//	shard RANK SOURCE BOX [STRIDES]                      a box lo0,hi0,… of it in a region of its own
//	param DEST NAME TYPE SHAPE                           a parameter of destination rank DEST
//	copy DEST PARAM SOURCE OFFSET SHAPE STRIDES OPS      as in captures
//	fill DEST PARAM OFFSET SHAPE STRIDES VALUE
//	alias DEST OTHER PARAM
//	option NAME [VALUE]                                  flat, classic, exact, reorders, narrow GLOB, batch N, staging N, exclude RANK
//	unchanged SOURCE BOX                                 what the base holds
//	print describe|summary|kept|explain PARAM|reroute BATCH
//
// After a line of dashes comes what the plan prints, or the refusal, a fault a line. Every plan is performed too, and
// what its pieces bring is compared with the shards.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "plans", "*.txt"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			asked, want, _ := strings.Cut(string(raw), "\n----\n")
			s := scenario{w: &plantest.World{}, sources: map[string]int{}}
			for i, line := range strings.Split(asked, "\n") {
				if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
					if err := s.say(words); err != nil {
						t.Fatalf("line %d, %s: %v", i+1, line, err)
					}
				}
			}
			got := s.play(t)
			if *rewrite {
				if err := os.WriteFile(name, []byte(strings.TrimRight(asked, "\n")+"\n\n----\n"+got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got\n%s\nexpected\n%s", got, want)
			}
		})
	}
}

// scenario is what a file asks for.
type scenario struct {
	w         *plantest.World
	names     []string
	dtypes    []plan.DType
	shapes    [][]int64
	sources   map[string]int
	dests     []plan.Dest
	o         plan.Options
	unchanged map[string][][]int64
	print     [][]string
}

func ints(word string) (out []int64, err error) {
	err = json.Unmarshal([]byte(word), &out)
	return out, err
}

// say takes one line in.
func (s *scenario) say(words []string) error {
	switch args := words[1:]; words[0] {
	case "source":
		return s.source(args)
	case "shard":
		return s.shard(args)
	case "param", "copy", "fill", "alias":
		return s.wanted(words[0], args)
	case "option":
		return s.option(args)
	case "unchanged":
		box, err := ints(args[1])
		if s.unchanged == nil {
			s.unchanged = map[string][][]int64{}
		}
		s.unchanged[args[0]] = append(s.unchanged[args[0]], box)
		return err
	case "print":
		s.print = append(s.print, args)
		return nil
	}
	return fmt.Errorf("no such word")
}

func (s *scenario) source(args []string) error {
	dt, err := plan.ParseDType(args[1])
	if err != nil {
		return err
	}
	shape, err := ints(args[2])
	s.sources[args[0]] = len(s.names)
	s.names, s.dtypes, s.shapes = append(s.names, args[0]), append(s.dtypes, dt), append(s.shapes, shape)
	return err
}

func (s *scenario) shard(args []string) error {
	rank, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	i := s.sources[args[1]]
	box, err := ints(args[2])
	if err != nil {
		return err
	}
	stride := plantest.RowMajor(plantest.Sizes(box))
	if len(args) > 3 {
		if stride, err = ints(args[3]); err != nil {
			return err
		}
	}
	room := plantest.Reach(plantest.Sizes(box), stride) * s.dtypes[i].Size()
	s.w.AddShard(rank, s.names[i], s.dtypes[i], s.shapes[i], box, stride, room)
	return nil
}

// dest finds a destination by its rank, or makes it.
func (s *scenario) dest(word string) *plan.Dest {
	rank, _ := strconv.Atoi(word)
	for i := range s.dests {
		if s.dests[i].Rank == rank {
			return &s.dests[i]
		}
	}
	s.dests = append(s.dests, plan.Dest{Rank: rank, Alias: map[string]string{}})
	return &s.dests[len(s.dests)-1]
}

func (s *scenario) wanted(word string, args []string) (err error) {
	d := s.dest(args[0])
	var offset int64
	var shape, stride []int64
	param := func(name string, region []string) int {
		if offset, err = strconv.ParseInt(region[0], 10, 64); err == nil {
			if shape, err = ints(region[1]); err == nil {
				stride, err = ints(region[2])
			}
		}
		for i := range d.Params {
			if d.Params[i].Name == name {
				return i
			}
		}
		return -1
	}
	switch word {
	case "param":
		dt, err := plan.ParseDType(args[2])
		if err != nil {
			return err
		}
		shape, err := ints(args[3])
		d.Params = append(d.Params, plan.Param{Name: args[1], DType: dt, Shape: shape})
		return err
	case "copy":
		c := plan.Copy{Source: args[2], Param: param(args[1], args[3:])}
		c.Offset, c.Shape, c.Stride = offset, shape, stride
		if err == nil {
			c.Ops, err = plan.DecodeOps([]byte(args[6]))
		}
		d.Copies = append(d.Copies, c)
	case "fill":
		f := plan.Fill{Param: param(args[1], args[2:])}
		f.Offset, f.Shape, f.Stride = offset, shape, stride
		if err == nil {
			f.Value, err = strconv.ParseFloat(args[5], 64)
		}
		d.Fills = append(d.Fills, f)
	case "alias":
		d.Alias[args[1]] = args[2]
	}
	return err
}

func (s *scenario) option(args []string) (err error) {
	number := func() int64 {
		var n int64
		n, err = strconv.ParseInt(args[1], 10, 64)
		return n
	}
	switch args[0] {
	case "flat":
		s.o.Costs = plan.CostsFlat
	case "exact":
		s.o.Costs = plan.Costs{PerSegment: 1, PerRun: 1, PerByte: 1e9}
	case "classic":
		s.o.Classic = true
	case "reorders":
		for i := range s.dests {
			s.dests[i].Reorders = true
		}
	case "narrow":
		s.o.AllowNarrowing = append(s.o.AllowNarrowing, args[1])
	case "batch":
		s.o.BatchBytes = number()
	case "staging":
		s.o.StagingBytes = number()
	case "exclude":
		n := number()
		s.o.Exclude = func(rank int) bool { return rank == int(n) }
	default:
		return fmt.Errorf("no such option")
	}
	return err
}

// play plans, performs, and returns what is printed.
func (s *scenario) play(t *testing.T) string {
	t.Helper()
	tab, err := plan.Merge(s.w.Layouts)
	if err != nil {
		return refusedLines(err)
	}
	s.w.Load(tab, func(i int) []byte {
		return plantest.Bytes(plantest.Nelems(tab.Shape(i))*tab.DType(i).Size(), int64(s.sources[tab.Name(i)]))
	})
	if s.unchanged != nil {
		s.o.Unchanged = func(i int) iter.Seq2[[]int64, []int64] {
			return kept{s.unchanged[tab.Name(i)]}.unchanged(0)
		}
	}
	for i := range s.dests {
		s.dests[i].LayOut(64)
	}
	p, err := plan.New(tab, s.dests, s.o)
	if err != nil {
		return refusedLines(err)
	}
	s.perform(t, p)
	var out strings.Builder
	for _, what := range s.print {
		out.WriteString(s.printed(t, p, what))
	}
	return out.String()
}

// refusedLines writes an error a fault a line.
func refusedLines(err error) string {
	var r *plan.Refused
	if !errors.As(err, &r) {
		return "refused\n  " + err.Error() + "\n"
	}
	out := "refused\n"
	for _, f := range r.Faults {
		out += "  " + f.Error() + "\n"
	}
	return out
}

// perform runs the plan over garbage, so that what it keeps shows as such.
func (s *scenario) perform(t *testing.T, p *plan.Plan) {
	t.Helper()
	arenas := make([][]byte, len(s.dests))
	for i := range arenas {
		n := int64(0)
		for k := range s.dests[i].Params {
			q := &s.dests[i].Params[k]
			n = max(n, q.Offset+plantest.Nelems(q.Shape)*q.DType.Size())
		}
		arenas[i] = make([]byte, n)
	}
	if err := s.w.Perform(p, arenas); err != nil {
		t.Error(err)
	}
}

// printed is one thing that the scenario asks to see.
func (s *scenario) printed(t *testing.T, p *plan.Plan, what []string) string {
	t.Helper()
	switch what[0] {
	case "describe":
		return p.Describe()
	case "summary":
		return p.Summary()
	case "kept":
		var b strings.Builder
		for k := range p.Kept() {
			fmt.Fprintf(&b, "kept %d @%d run %d %v (%v)\n", k.Dest, k.Off, k.Run, k.Shape, k.Stride)
		}
		return b.String()
	case "explain":
		e, err := p.Explain(0, what[1])
		if err != nil {
			return err.Error() + "\n"
		}
		return e.String()
	case "reroute":
		batch, err := strconv.Atoi(what[1])
		if err != nil {
			t.Fatal(err)
		}
		bad := p.Batch(batch).Rank
		q, err := p.Reroute(batch, func(rank int) bool { return rank == bad })
		if err != nil {
			return refusedLines(err)
		}
		return fmt.Sprintf("without rank %d\n%s", bad, q.Describe())
	}
	t.Fatalf("print %v", what)
	return ""
}
