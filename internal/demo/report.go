package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/drydock-rl/drydock/internal/proof"
	"github.com/drydock-rl/drydock/internal/tracesink"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// result is one version: what each receiver recorded, what was proven, and the trace.
type result struct {
	Version uint64            `json:"version"`
	Records []*tracing.Record `json:"receivers"`
	Proofs  []proof.Report    `json:"proofs"`
	Trace   tracesink.Trace   `json:"-"`
}

func (res *result) proven() (params int, nbytes int64) {
	for _, p := range res.Proofs {
		params += p.Params
		nbytes += p.Nbytes
	}
	return params, nbytes
}

// report writes the results: tables and a tree for people, or JSON.
func (r *run) report(results []*result) error {
	if r.o.JSON {
		return r.reportJSON(results)
	}
	for _, res := range results {
		if err := writeTable(r.out, res); err != nil {
			return err
		}
	}
	last := results[len(results)-1]
	fmt.Fprintf(r.out, "\nThe trace of version %d, across all processes:\n\n", last.Version)
	if err := last.Trace.Draw(r.out, tracesink.DrawOptions{}); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "\nThe arenas, valid safetensors files:\n")
	for rank := range r.o.Receivers {
		fmt.Fprintf(r.out, "  %s\n", r.files.arena(rank))
	}
	if !r.o.Keep {
		fmt.Fprintf(r.out, "They are removed now. --keep leaves them, and everything running until Ctrl-C.\n")
	}
	fmt.Fprintf(r.out, "\nAll %d versions were applied by all %d receivers, and every byte was proven.\n", len(results), r.o.Receivers)
	return nil
}

func (r *run) reportJSON(results []*result) error {
	arenas := make([]string, r.o.Receivers)
	for rank := range arenas {
		arenas[rank] = r.files.arena(rank)
	}
	e := json.NewEncoder(r.out)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{
		"model": r.model, "checkpoint": r.files.checkpoint, "capture": r.files.captureFile, "seed": r.o.Seed,
		"trainers": r.o.Trainers, "layout": r.o.Layout, "tp": r.o.Receivers,
		"arenas": arenas, "versions": results,
	})
}

// row is one line of a version's table.
type row struct {
	name  string
	value func(*tracing.Record) string
}

func rows() []row {
	all := []row{
		{"needed", func(r *tracing.Record) string { return size(r.Drydock.NeededBytes) }},
		{"read", func(r *tracing.Record) string { return size(r.Bytes) }},
		{"wire amplification", amplification},
		{"speed while reading", speed},
		{"verified", func(r *tracing.Record) string { return percent(r.Drydock.VerifiedBytes, r.Drydock.StagedBytes) }},
		{"transports", transports},
		{"plan", func(r *tracing.Record) string { return r.ColdWarm }},
	}
	for _, s := range tracing.Stages() {
		all = append(all, row{"  " + s.String(), func(r *tracing.Record) string { return stage(r.Stages.Get(s)) }})
	}
	return append(all,
		row{"end to end", func(r *tracing.Record) string { return ms(r.E2EMs) }},
		row{"in no stage", func(r *tracing.Record) string { return ms(r.UnattributedMs) }},
		row{"apply pause", func(r *tracing.Record) string { return fmt.Sprintf("%.3f ms", pauseMs(r)) }},
	)
}

func writeTable(out io.Writer, res *result) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "\nversion %d", res.Version)
	for i := range res.Records {
		fmt.Fprintf(w, "\t%s", receiverName(i))
	}
	fmt.Fprintln(w)
	for _, row := range rows() {
		fmt.Fprint(w, row.name)
		for _, r := range res.Records {
			fmt.Fprintf(w, "\t%s", row.value(r))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func ms(m tracing.Millis) string { return fmt.Sprintf("%.1f ms", float64(m)) }

func stage(s tracing.StageRecord) string {
	switch s.Status {
	case tracing.StatusNotApplicable, tracing.StatusNotRecorded:
		return string(s.Status)
	case tracing.StatusCombined:
		return fmt.Sprintf("in %v", s.Metadata["combined_with"])
	}
	return ms(s.DurationMs)
}

func amplification(r *tracing.Record) string {
	if r.Drydock.NeededBytes == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3f", float64(r.Bytes)/float64(r.Drydock.NeededBytes))
}

func speed(r *tracing.Record) string {
	took := float64(r.Stages.Get(tracing.WireTransfer).DurationMs)
	if took == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f GB/s", float64(r.Bytes)/took/1e6)
}

func transports(r *tracing.Record) string {
	text, _ := r.Stages.Get(tracing.SetupRegistration).Metadata[string(tracing.AttrTransport)].(string)
	return text
}
