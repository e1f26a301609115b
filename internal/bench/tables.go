package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// benchRanks is how many FSDP trainers serve the model, tpSize into how many parts engines cut it.
const (
	benchRanks = 16
	tpSize     = 4
)

// benchTables measures what is done once for each new geometry: encode and decode layouts, merge, plan.
func benchTables(ctx context.Context, out io.Writer, o Options) error {
	sources := qwenSources()
	layouts, err := fsdpLayouts(sources, benchRanks)
	if err != nil {
		return err
	}
	encoded := make([][]byte, len(layouts))
	var nbytes int
	for i, l := range layouts {
		if encoded[i], err = messages.EncodeLayout(l); err != nil {
			return err
		}
		nbytes += len(encoded[i])
	}
	dest, err := qwenDest(sources)
	if err != nil {
		return err
	}
	entries := float64(len(sources) * benchRanks)
	views := make([]*plan.Layout, len(layouts))
	for i, l := range layouts {
		views[i] = refit.PlanLayout(l)
	}
	s := section{title: fmt.Sprintf("Qwen3-30B-A3B: %d tensors of %d trainer ranks, %.2f bytes an entry on the wire; one destination rank of %d",
		len(sources), benchRanks, float64(nbytes)/entries, tpSize), rows: []*row{
		{name: "encode 16 layouts", amount: entries, unit: "entries", run: func() error { return encodeAll(layouts) }},
		{name: "decode 16 layouts", amount: entries, unit: "entries", run: func() error { return decodeAll(encoded) }},
		{name: "merge and plan", run: func() error { return planOnce(views, dest) }},
	}}
	return s.measure(ctx, out, o.Rounds)
}

func encodeAll(layouts []*messages.Layout) error {
	for _, l := range layouts {
		if _, err := messages.EncodeLayout(l); err != nil {
			return err
		}
	}
	return nil
}

func decodeAll(encoded [][]byte) error {
	for _, b := range encoded {
		if _, err := messages.DecodeLayout(b); err != nil {
			return err
		}
	}
	return nil
}

func planOnce(layouts []*plan.Layout, dest plan.Dest) error {
	table, err := plan.Merge(layouts)
	if err != nil {
		return err
	}
	_, err = plan.New(table, []plan.Dest{dest}, plan.Options{})
	return err
}

// qwenDest is destination rank 1, its parameters placed one after the other.
func qwenDest(sources []capturegen.Source) (plan.Dest, error) {
	c, err := capturegen.FromSources(sources, qwenConfig(), tpSize)
	if err != nil {
		return plan.Dest{}, err
	}
	var b bytes.Buffer
	if err := c.Encode(&b); err != nil {
		return plan.Dest{}, err
	}
	capture, err := plan.DecodeCapture(b.Bytes())
	if err != nil {
		return plan.Dest{}, err
	}
	d, err := capture.Dest(tpSize, 1, false)
	var at int64
	for i := range d.Params {
		p := &d.Params[i]
		p.Offset = at
		n := p.DType.Size()
		for _, dim := range p.Shape {
			n *= dim
		}
		at += n
	}
	return d, err
}
