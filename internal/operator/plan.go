package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/shardlayout"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/internal/trainer"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// PlanRequest says what to plan, but for what the trainers hold.
type PlanRequest struct {
	Capture        string // file
	TP             int
	Ranks          []int // destination ranks of one host
	EP             bool
	Select         []string // globs of sources or parameters; nil: all copies
	Layers         []int    // of those only copies of these layers; nil: all
	Experts        []int    // and of these experts; nil: all
	AllowNarrowing []string
	Flat           bool   // cost model of transports that take a descriptor for each run
	Classic        bool   // the reference planner's rules
	MaxSegments    int    // of them: runs of a copy beyond which its source is read whole; 0: 64
	Param          string // explain only this parameter; "": sum all up
	Canonical      bool   // print the plan canonically instead
}

// PlanReport is the answer of refitctl plan.
type PlanReport struct {
	Stats        PlanStats           `json:"stats"`
	Explanations []*plan.Explanation `json:"explanations,omitempty"` // of one parameter, by destination rank
	Classic      []ClassicRow        `json:"classic,omitempty"`
	Unread       []string            `json:"unread,omitempty"` // sources that no copy of these destinations reads

	plan      *plan.Plan
	canonical bool
}

// PlanStats sums a plan up.
type PlanStats struct {
	Needed        int64   `json:"needed_bytes"`
	Written       int64   `json:"written_bytes"` // of arenas
	Wire          int64   `json:"wire_bytes"`
	Amplification float64 `json:"amplification"`
	Segments      int64   `json:"segments"`
	Runs          int64   `json:"runs"`
	ExactRuns     int64   `json:"exact_runs"`
	Staged        int64   `json:"staged_bytes"`
	StagingPeak   int64   `json:"staging_peak_bytes"`
	Batches       int     `json:"batches"`
	Ranks         int     `json:"ranks"`
	Copies        int     `json:"copies"`
	Sources       int     `json:"sources"`
}

// ClassicRow is what the reference planner would say of one destination.
type ClassicRow struct {
	Rank        int      `json:"rank"`
	ExactRuns   int64    `json:"exact_descriptors"`
	ExactBytes  int64    `json:"exact_bytes"`
	Descriptors int64    `json:"descriptors"`
	Bytes       int64    `json:"bytes_planned"`
	Sessions    []int    `json:"sessions"`
	Fallback    []string `json:"fallback"`
	FullPulls   int      `json:"full_pulls"`
	Unbounded   []string `json:"unbounded"`
}

// CheckpointTable is what trainers hold that share a checkpoint by a layout.
func CheckpointTable(dir, layout string, trainers int) (_ *plan.Table, err error) {
	kind, err := shardlayout.ParseKind(layout)
	if err != nil {
		return nil, cli.WithCode(cli.ExitUsage, err)
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		return nil, cli.WithCode(cli.ExitInput, err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m := plan.NewMerger()
	for rank := range max(trainers, 1) {
		shards, err := trainer.Cut(c, kind, rank, trainers, tiles.Options{})
		if err != nil {
			return nil, cli.WithCode(cli.ExitUsage, err)
		}
		if err := m.Add(refit.PlanLayout(shards.Layout())); err != nil {
			return nil, cli.WithCode(cli.ExitInput, err)
		}
	}
	return m.Table(), nil
}

// PublishedTable is what the publishers of a committed version hold.
func PublishedTable(ctx context.Context, c *messages.Control, k messages.Key) (*plan.Table, error) {
	v, err := c.Assemble(ctx, k)
	if err != nil {
		return nil, err
	}
	m := plan.NewMerger()
	for i := range v.Ranks {
		if err := m.Add(refit.PlanLayout(v.Ranks[i].Layout)); err != nil {
			return nil, cli.WithCode(cli.ExitMismatch, fmt.Errorf("merge the layouts of version %s: %w", k, err))
		}
	}
	return m.Table(), nil
}

// Refusal is the answer when no plan can be made.
type Refusal struct {
	Faults []FaultRow `json:"refused"`
	More   int        `json:"more,omitempty"` // beyond those kept
}

// FaultRow is one reason for a refusal.
type FaultRow struct {
	Reason string  `json:"reason"`
	Rank   int     `json:"rank"` // destination rank; -1: it is about what the trainers hold
	Param  string  `json:"param,omitempty"`
	Source string  `json:"source,omitempty"`
	Box    []int64 `json:"box,omitempty"` // lo0,hi0,… in elements of the source or parameter
	Ranks  []int   `json:"ranks,omitempty"`
	Text   string  `json:"text"`
}

// Refused lists the reasons why a plan was not made; nil for other errors.
func Refused(err error) *Refusal {
	var refused *plan.Refused
	if !errors.As(err, &refused) {
		return nil
	}
	r := &Refusal{More: refused.More}
	for _, f := range refused.Faults {
		r.Faults = append(r.Faults, FaultRow{
			Reason: f.Err.Error(), Rank: f.Rank, Param: f.Param, Source: f.Source, Box: f.Box, Ranks: f.Ranks, Text: f.Error(),
		})
	}
	return r
}

// Write draws a line for each reason.
func (r *Refusal) Write(w io.Writer) error {
	for _, f := range r.Faults {
		if _, err := fmt.Fprintln(w, printable(f.Text)); err != nil {
			return err
		}
	}
	if r.More > 0 {
		fmt.Fprintf(w, "and %d more\n", r.More)
	}
	return nil
}

// Err is the refusal in one line.
func (r *Refusal) Err() error {
	return cli.WithCode(cli.ExitMismatch, fmt.Errorf("no plan can be made, for %d reasons", len(r.Faults)+r.More))
}

// MakePlan plans. Refused tells why it could not.
func MakePlan(t *plan.Table, r PlanRequest) (*PlanReport, error) {
	dests, err := r.dests()
	if err != nil {
		return nil, cli.WithCode(cli.ExitInput, err)
	}
	o := plan.Options{AllowNarrowing: r.AllowNarrowing, Classic: r.Classic, MaxSegmentsPerCopy: r.MaxSegments}
	if r.Flat {
		o.Costs = plan.CostsFlat
	}
	o.Select = r.selection(t, dests)
	p, err := plan.New(t, dests, o)
	if err != nil {
		return nil, cli.WithCode(cli.ExitMismatch, err)
	}
	report := &PlanReport{Stats: planStats(p.Stats()), Unread: plan.Unread(t, dests), plan: p, canonical: r.Canonical}
	for i, c := range p.Classic() {
		report.Classic = append(report.Classic, ClassicRow{
			Rank: dests[i].Rank, ExactRuns: c.ExactDescriptorCount, ExactBytes: c.ExactBytes, Descriptors: c.DescriptorCount,
			Bytes: c.BytesPlanned, Sessions: c.Sessions, Fallback: c.Fallback, FullPulls: len(c.FullPulls), Unbounded: c.Unbounded,
		})
	}
	return report, report.explain(len(dests), r.Param)
}

// selection says which copies are asked for; nil when all are.
func (r *PlanRequest) selection(t *plan.Table, dests []plan.Dest) func(dest int, c *plan.Copy) bool {
	var all []plan.Selector
	if len(r.Select) > 0 {
		all = append(all, plan.SelectGlobs(r.Select))
	}
	if len(r.Layers) > 0 {
		all = append(all, plan.SelectLayers(r.Layers))
	}
	if len(r.Experts) > 0 {
		all = append(all, plan.SelectExperts(r.Experts))
	}
	if all == nil {
		return nil
	}
	return plan.SelectAll(all...)(t, dests)
}

// dests reads the capture and takes the ranks out of it.
func (r *PlanRequest) dests() ([]plan.Dest, error) {
	b, err := cli.ReadFile(r.Capture, plan.MaxCaptureBytes)
	if err != nil {
		return nil, fmt.Errorf("read capture: %w", err)
	}
	capture, err := plan.DecodeCapture(b)
	if err != nil {
		return nil, fmt.Errorf("read capture %s: %w", r.Capture, err)
	}
	var dests []plan.Dest
	for _, rank := range r.Ranks {
		d, err := capture.Dest(r.TP, rank, r.EP)
		if err != nil {
			return nil, fmt.Errorf("read capture %s: %w", r.Capture, err)
		}
		d.LayOut(0)
		dests = append(dests, d)
	}
	return dests, nil
}

// explain explains one parameter for each destination that has it.
func (r *PlanReport) explain(dests int, param string) error {
	if param == "" {
		return nil
	}
	var last error
	for i := range dests {
		e, err := r.plan.Explain(i, param)
		if err != nil {
			last = err
			continue
		}
		r.Explanations = append(r.Explanations, e)
	}
	if len(r.Explanations) == 0 {
		return cli.WithCode(cli.ExitInput, last)
	}
	return nil
}

// Picture draws a parameter of the first destination that has it, as SVG.
func (r *PlanReport) Picture(dests int, param string) (string, error) {
	var last error
	for i := range dests {
		svg, err := r.plan.Picture(i, param)
		if err == nil {
			return svg, nil
		}
		last = err
	}
	return "", cli.WithCode(cli.ExitInput, last)
}

func planStats(s plan.Stats) PlanStats {
	return PlanStats{
		Needed: s.Needed, Written: s.Written, Wire: s.Wire, Amplification: s.Amplification(), Segments: s.Segments, Runs: s.Runs,
		ExactRuns: s.ExactRuns, Staged: s.Staged, StagingPeak: s.StagingPeak, Batches: s.Batches, Ranks: s.Ranks, Copies: s.Copies, Sources: s.Sources,
	}
}

// Write draws the plan, or what was asked of it.
func (r *PlanReport) Write(w io.Writer) error {
	switch {
	case r.canonical:
		return r.plan.WriteDescription(w)
	case len(r.Explanations) == 0:
		if _, err := io.WriteString(w, r.plan.Summary()); err != nil {
			return err
		}
		if len(r.Unread) > 0 {
			fmt.Fprintf(w, "nobody here reads %d of the trainers' tensors: %s\n", len(r.Unread), printable(names(r.Unread)))
		}
	}
	for _, e := range r.Explanations {
		if _, err := fmt.Fprintln(w, e.String()); err != nil {
			return err
		}
	}
	if len(r.Classic) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := table{head: []string{"CLASSIC RANK", "DESCRIPTORS", "OF EXACT", "BYTES", "OF EXACT", "SESSIONS", "FULL PULLS", "FALLBACK", "UNBOUNDED"}}
	for _, c := range r.Classic {
		t.add(fmt.Sprint(c.Rank), fmt.Sprint(c.Descriptors), fmt.Sprint(c.ExactRuns), Size(c.Bytes).String(), Size(c.ExactBytes).String(),
			ranks(slices.Sorted(slices.Values(c.Sessions))), fmt.Sprint(c.FullPulls), names(c.Fallback), names(c.Unbounded))
	}
	return t.write(w, "")
}
