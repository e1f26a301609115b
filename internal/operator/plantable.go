package operator

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// maxTableBytes bounds what one file of shard tables may hold, decompressed.
const maxTableBytes = 1 << 30

// FileTable is what the trainers hold by files: each a layout as publishers store it, or a refit.layouts.v1 file
// (JSON, gzipped or not) with the shard tables of all ranks of a job.
func FileTable(files []string) (*plan.Table, error) {
	m := plan.NewMerger()
	for _, name := range files {
		layouts, err := readLayouts(name)
		if err != nil {
			return nil, cli.WithCode(cli.ExitInput, fmt.Errorf("read shard table %s: %w", name, err))
		}
		for _, l := range layouts {
			if err := m.Add(l); err != nil {
				return nil, cli.WithCode(cli.ExitInput, fmt.Errorf("merge shard table %s: %w", name, err))
			}
		}
	}
	return m.Table(), nil
}

// readLayouts tells the two kinds of files apart by their first byte.
func readLayouts(name string) ([]*plan.Layout, error) {
	raw, err := cli.ReadFile(name, maxTableBytes)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		if raw, err = io.ReadAll(io.LimitReader(z, maxTableBytes)); err != nil {
			return nil, err
		}
	}
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return jobLayouts(raw)
	}
	l, err := messages.DecodeLayout(raw)
	if err != nil {
		return nil, fmt.Errorf("neither a layout blob nor a refit.layouts.v1 file: %w", err)
	}
	return []*plan.Layout{refit.PlanLayout(l)}, nil
}

// jobTables is a file of schema refit.layouts.v1: every rank's entries, each a box of a tensor in some storage.
type jobTables struct {
	Schema string `json:"schema"`
	Ranks  []struct {
		Rank    int        `json:"rank"`
		Entries []jobEntry `json:"entries"`
	} `json:"ranks"`
}

type jobEntry struct {
	Name    string     `json:"name"`
	DType   string     `json:"dtype"`
	Shape   []int64    `json:"global_shape"`
	Box     [][2]int64 `json:"box"`
	Stride  []int64    `json:"local_stride"`   // elements
	Offset  int64      `json:"storage_offset"` // elements
	Nbytes  int64      `json:"storage_bytes"`
	Storage string     `json:"storage"` // entries with the same value share one; "": its own
}

func jobLayouts(raw []byte) ([]*plan.Layout, error) {
	var f jobTables
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	if f.Schema != "refit.layouts.v1" {
		return nil, fmt.Errorf("schema %q, expected refit.layouts.v1", f.Schema)
	}
	var out []*plan.Layout
	for i := range f.Ranks {
		l := &plan.Layout{Rank: f.Ranks[i].Rank, Stride: []int64{}}
		regions, sources := map[string]uint32{}, map[string]uint32{}
		for k := range f.Ranks[i].Entries {
			if err := f.Ranks[i].Entries[k].add(l, regions, sources); err != nil {
				return nil, fmt.Errorf("rank %d, entry %d: %w", l.Rank, k, err)
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// add appends the entry's columns. Each storage is a region.
func (e *jobEntry) add(l *plan.Layout, regions, sources map[string]uint32) error {
	dt, err := plan.ParseDType(e.DType)
	if err != nil {
		return err
	}
	if len(e.Box) != len(e.Shape) || len(e.Stride) != len(e.Shape) {
		return fmt.Errorf("%q: shape %v, box %v, strides %v", e.Name, e.Shape, e.Box, e.Stride)
	}
	region, ok := regions[e.Storage]
	if !ok || e.Storage == "" {
		region = uint32(len(l.Regions))
		regions[e.Storage] = region
		l.Regions = append(l.Regions, 0)
	}
	l.Regions[region] = max(l.Regions[region], e.Nbytes)
	source, ok := sources[e.Name]
	if !ok {
		source = uint32(len(l.Names))
		sources[e.Name] = source
		l.Names, l.DTypes = append(l.Names, e.Name), append(l.DTypes, dt)
		l.Shapes = append(l.Shapes, e.Shape...)
		l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
	}
	l.Source, l.Region = append(l.Source, source), append(l.Region, region)
	l.Offset = append(l.Offset, e.Offset*dt.Size())
	for _, b := range e.Box {
		l.Box = append(l.Box, b[0], b[1])
	}
	l.Stride = append(l.Stride, e.Stride...)
	return nil
}
