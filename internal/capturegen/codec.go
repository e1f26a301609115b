package capturegen

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxBytes bounds the JSON text, compressed or not.
const maxBytes = 512 << 20

// Encode writes the capture as JSON with a line for each case.
func (c *Capture) Encode(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(c); err != nil {
		return fmt.Errorf("encode capture of %s: %w", c.Family, err)
	}
	return nil
}

// Decode reads a capture, gzip or plain JSON, and checks that its
// positions, names and shapes hang together.
func Decode(b []byte) (*Capture, error) {
	text, err := inflate(b)
	if err != nil {
		return nil, fmt.Errorf("decode capture: %w", err)
	}
	c := new(Capture)
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("decode capture: %w", err)
	}
	if c.Schema != Schema {
		return nil, fmt.Errorf("decode capture: found schema %q, expected %q", c.Schema, Schema)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("decode capture of %s: %w", c.Family, err)
	}
	return c, nil
}

// inflate undoes gzip where the text begins with its two magic bytes.
func inflate(b []byte) ([]byte, error) {
	if len(b) < 2 || b[0] != 0x1f || b[1] != 0x8b {
		return b, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("inflate: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("inflate: %w", err)
	}
	if len(text) > maxBytes {
		return nil, fmt.Errorf("inflate: more than %d bytes of JSON", maxBytes)
	}
	return text, nil
}

// MarshalJSON writes [source, ops, param, offset, shape, stride].
func (c Copy) MarshalJSON() ([]byte, error) {
	ops := c.Ops
	if ops == nil {
		ops = []Op{}
	}
	return json.Marshal([]any{c.Source, ops, c.Param, c.Offset, list(c.Shape), list(c.Stride)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Copy) UnmarshalJSON(b []byte) error {
	return tuple(b, "copy", &c.Source, &c.Ops, &c.Param, &c.Offset, &c.Shape, &c.Stride)
}

// MarshalJSON writes [param, offset, shape, stride, value].
func (f Fill) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{f.Param, f.Offset, list(f.Shape), list(f.Stride), f.Value})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *Fill) UnmarshalJSON(b []byte) error {
	return tuple(b, "fill", &f.Param, &f.Offset, &f.Shape, &f.Stride, &f.Value)
}

// MarshalJSON writes [name, arguments].
func (o Op) MarshalJSON() ([]byte, error) {
	args := o.Args
	if args == nil {
		args = []any{}
	}
	return json.Marshal([]any{o.Name, args})
}

// UnmarshalJSON reads what MarshalJSON writes. Numbers become int64: no operation takes another kind.
func (o *Op) UnmarshalJSON(b []byte) error {
	var raw json.RawMessage
	if err := tuple(b, "op", &o.Name, &raw); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&o.Args); err != nil {
		return fmt.Errorf("arguments of op %s: %w", o.Name, err)
	}
	for i, arg := range o.Args {
		var err error
		if o.Args[i], err = integers(arg); err != nil {
			return fmt.Errorf("arguments of op %s: %w", o.Name, err)
		}
	}
	return nil
}

// integers replaces numbers, at any depth, by int64.
func integers(arg any) (any, error) {
	var err error
	switch x := arg.(type) {
	case json.Number:
		n, err := strconv.ParseInt(string(x), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("found %s, expected an integer", x)
		}
		return n, nil
	case []any:
		for i := range x {
			if x[i], err = integers(x[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for key := range x {
			if x[key], err = integers(x[key]); err != nil {
				return nil, err
			}
		}
	}
	return arg, nil
}

// tuple decodes a JSON array of exactly these fields.
func tuple(b []byte, what string, fields ...any) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return fmt.Errorf("decode %s: %w", what, err)
	}
	if len(raw) != len(fields) {
		return fmt.Errorf("decode %s: found %d fields, expected %d", what, len(raw), len(fields))
	}
	var errs []error
	for i := range raw {
		errs = append(errs, json.Unmarshal(raw[i], fields[i]))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("decode %s: %w", what, err)
	}
	return nil
}

// list keeps an empty shape from being written as null.
func list(s []int64) []int64 {
	if s == nil {
		return []int64{}
	}
	return s
}
