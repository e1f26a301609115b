package plan

import (
	"encoding/json"
	"fmt"
)

// captureFile is the JSON of a capture. Copies and fills are lists of values, decoded one by one: an object for each
// of 24,000 would be read and written ten times as slowly.
type captureFile struct {
	Schema  string          `json:"schema"`
	Engine  string          `json:"engine"`
	Family  string          `json:"family"`
	Config  json.RawMessage `json:"config"`
	Sources []struct {
		Name  string  `json:"name"`
		DType string  `json:"dtype"`
		Shape []int64 `json:"shape"`
	} `json:"sources"`
	Cases []captureCaseFile `json:"cases"`
}

// captureCaseFile is the JSON of one simulated rank.
type captureCaseFile struct {
	Arch   string              `json:"arch"`
	TP     int                 `json:"tp"`
	Rank   int                 `json:"rank"`
	EP     bool                `json:"ep"`
	Params []captureParamFile  `json:"params"`
	Copies [][]json.RawMessage `json:"copies"`
	Fills  [][]json.RawMessage `json:"fills"`
	Alias  map[string]string   `json:"alias"`
	Unread []int               `json:"unread"`
}

// captureParamFile is the JSON of one parameter. Excluded is nil for those that copies and fills make.
type captureParamFile struct {
	Name     string  `json:"name"`
	DType    string  `json:"dtype"`
	Shape    []int64 `json:"shape"`
	XXH3     string  `json:"xxh3_64"`
	SHA256   string  `json:"sha256"`
	Excluded *string `json:"excluded"`
}

// captureDecoder shares equal op-chains and lists between copies: there are thousands of copies and
// dozens of shapes, and the planner knows what it has seen by identity.
type captureDecoder struct {
	ops   map[string][]Op
	lists map[string][]int64
}

// file checks what the whole capture must fulfil, then goes case by case.
func (d *captureDecoder) file(f *captureFile) (*Capture, error) {
	if f.Schema != CaptureSchema {
		return nil, fmt.Errorf("schema %q, expected %q", f.Schema, CaptureSchema)
	}
	if len(f.Cases) > maxCaptureCases || len(f.Sources) > maxCaptureItems {
		return nil, fmt.Errorf("%w: %d cases, %d sources", ErrLimit, len(f.Cases), len(f.Sources))
	}
	c := &Capture{Engine: f.Engine, Family: f.Family, Config: f.Config}
	for i := range f.Sources {
		s := &f.Sources[i]
		dt, err := ParseDType(s.DType)
		if err == nil {
			err = saneTensor(s.Name, s.Shape)
		}
		if err != nil {
			return nil, fmt.Errorf("source %d: %w", i, err)
		}
		c.Sources = append(c.Sources, CaptureSource{s.Name, dt, s.Shape})
	}
	for i := range f.Cases {
		k, err := d.oneCase(&f.Cases[i], c.Sources)
		if err != nil {
			return nil, fmt.Errorf("case %d (tp %d, rank %d): %w", i, f.Cases[i].TP, f.Cases[i].Rank, err)
		}
		c.Cases = append(c.Cases, k)
	}
	return c, nil
}

// saneTensor bounds what a name and a shape can make others allocate or compute.
func saneTensor(name string, shape []int64) error {
	if len(name) > maxCaptureName {
		return fmt.Errorf("%w: a name of %d bytes", ErrLimit, len(name))
	}
	if len(shape) > maxSourceDims {
		return fmt.Errorf("%w: %q has %d dimensions, at most %d", ErrLimit, name, len(shape), maxSourceDims)
	}
	n := int64(1)
	for _, s := range shape {
		if s < 0 {
			return fmt.Errorf("%q has shape %v", name, shape)
		}
		var fits bool
		if n, fits = mul(n, max(s, 1)); !fits {
			return fmt.Errorf("the elements of %q%v overflow", name, shape)
		}
	}
	return nil
}

// param decodes one parameter. One that is excluded may have a type or a shape that nobody knows.
func (f *captureParamFile) param() (CaptureParam, error) {
	dt, err := ParseDType(f.DType)
	if err == nil {
		err = saneTensor(f.Name, f.Shape)
	}
	q := CaptureParam{Param: Param{Name: f.Name, DType: dt, Shape: f.Shape}, XXH3: f.XXH3, SHA256: f.SHA256}
	if f.Excluded == nil {
		return q, err
	}
	if len(*f.Excluded) > maxCaptureReason {
		return q, fmt.Errorf("%w: a reason of %d bytes", ErrLimit, len(*f.Excluded))
	}
	if q.Excluded = *f.Excluded; q.Excluded == "" {
		q.Excluded = "no reason given"
	}
	return q, nil
}

// oneCase decodes one simulated rank.
func (d *captureDecoder) oneCase(f *captureCaseFile, sources []CaptureSource) (k CaptureCase, err error) {
	k = CaptureCase{Arch: f.Arch, TP: f.TP, Rank: f.Rank, EP: f.EP, Alias: f.Alias}
	if len(f.Params) > maxCaptureItems || len(f.Copies) > maxCaptureItems || len(f.Fills) > maxCaptureItems {
		return k, fmt.Errorf("%w: %d parameters, %d copies, %d fills", ErrLimit, len(f.Params), len(f.Copies), len(f.Fills))
	}
	for i := range f.Params {
		q, err := f.Params[i].param()
		if err != nil {
			return k, fmt.Errorf("parameter %d: %w", i, err)
		}
		k.Params = append(k.Params, q)
	}
	k.Copies = make([]Copy, len(f.Copies))
	for i, raw := range f.Copies {
		if err := d.copy(raw, sources, &k.Copies[i]); err != nil {
			return k, fmt.Errorf("copy %d: %w", i, err)
		}
	}
	for i, raw := range f.Fills {
		fill, err := d.fill(raw)
		if err != nil {
			return k, fmt.Errorf("fill %d: %w", i, err)
		}
		k.Fills = append(k.Fills, fill)
	}
	for _, s := range f.Unread {
		if s < 0 || s >= len(sources) {
			return k, fmt.Errorf("unread source %d of %d", s, len(sources))
		}
		k.Unread = append(k.Unread, sources[s].Name)
	}
	return k, nil
}

// copy decodes [source, ops, param, offset, shape, stride].
func (d *captureDecoder) copy(raw []json.RawMessage, sources []CaptureSource, c *Copy) (err error) {
	if len(raw) != 6 {
		return fmt.Errorf("%d values, expected 6", len(raw))
	}
	source, err := parseInt(raw[0])
	if err != nil || source < 0 || source >= int64(len(sources)) {
		return fmt.Errorf("source %.20s of %d", raw[0], len(sources))
	}
	c.Source = sources[source].Name
	ops, ok := d.ops[string(raw[1])]
	if !ok {
		if ops, err = DecodeOps(raw[1]); err != nil {
			return err
		}
		d.ops[string(raw[1])] = ops
	}
	c.Ops = ops
	c.Param, c.Offset, c.Shape, c.Stride, err = d.region(raw[2:])
	return err
}

// region decodes param, offset, shape, stride.
func (d *captureDecoder) region(raw []json.RawMessage) (param int, off int64, shape, stride []int64, err error) {
	p, err := parseInt(raw[0])
	if err != nil {
		return 0, 0, nil, nil, err
	}
	if off, err = parseInt(raw[1]); err != nil {
		return 0, 0, nil, nil, err
	}
	if shape, err = d.list(raw[2]); err != nil {
		return 0, 0, nil, nil, err
	}
	stride, err = d.list(raw[3])
	return int(p), off, shape, stride, err
}

// list decodes sizes or strides; equal ones share one slice.
func (d *captureDecoder) list(raw json.RawMessage) ([]int64, error) {
	if l, ok := d.lists[string(raw)]; ok {
		return l, nil
	}
	var l []int64
	if err := json.Unmarshal(raw, &l); err != nil {
		return nil, err
	}
	if len(l) > maxWalk {
		return nil, fmt.Errorf("%w: %d dimensions", ErrLimit, len(l))
	}
	d.lists[string(raw)] = l
	return l, nil
}

// fill decodes [param, offset, shape, stride, value].
func (d *captureDecoder) fill(raw []json.RawMessage) (f Fill, err error) {
	if len(raw) != 5 {
		return f, fmt.Errorf("%d values, expected 5", len(raw))
	}
	if f.Param, f.Offset, f.Shape, f.Stride, err = d.region(raw); err != nil {
		return f, err
	}
	f.Value, err = parseFloat(raw[4])
	return f, err
}
