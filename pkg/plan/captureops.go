package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// DecodeOps reads an op-chain as captures and golden files write it: a list of [name, arguments].
func DecodeOps(raw []byte) ([]Op, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("ops: %w", err)
	}
	if len(list) > maxCaptureOps {
		return nil, fmt.Errorf("%w: %d operations in a chain", ErrLimit, len(list))
	}
	ops := make([]Op, len(list))
	for i, r := range list {
		if err := decodeOp(r, &ops[i]); err != nil {
			return nil, fmt.Errorf("op %d: %w", i, err)
		}
	}
	return ops, nil
}

// decodeOp reads [name, arguments]; the arguments may be missing.
func decodeOp(raw []byte, op *Op) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	if len(parts) < 1 || len(parts) > 2 {
		return fmt.Errorf("%d values, expected a name and arguments", len(parts))
	}
	if err := json.Unmarshal(parts[0], &op.Name); err != nil {
		return err
	}
	if len(op.Name) > maxCaptureName {
		return fmt.Errorf("%w: a name of %d bytes", ErrLimit, len(op.Name))
	}
	if len(parts) == 1 {
		return nil
	}
	var args []json.RawMessage
	if err := json.Unmarshal(parts[1], &args); err != nil {
		return fmt.Errorf("arguments of %s: %w", op.Name, err)
	}
	op.Args = make([]Arg, len(args))
	for i, r := range args {
		if err := decodeArg(r, &op.Args[i]); err != nil {
			return fmt.Errorf("argument %d of %s: %w", i, op.Name, err)
		}
	}
	return nil
}

// decodeArg tells arguments apart by their first byte: a number, a list of numbers, a tagged object,
// or anything else, which stays text and is refused by the operation that gets it.
func decodeArg(raw []byte, a *Arg) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return fmt.Errorf("no value")
	}
	switch {
	case raw[0] == '[':
		if a.Kind = ArgInts; json.Unmarshal(raw, &a.Ints) == nil {
			return nil
		}
		a.Ints = nil // a list of something else: text
	case raw[0] == '{':
		return decodeTagged(raw, a)
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		if n, err := parseInt(raw); err == nil {
			a.Kind, a.Int = ArgInt, n
			return nil
		}
	case raw[0] == '"':
		a.Kind = ArgText
		return json.Unmarshal(raw, &a.Text)
	}
	a.Kind, a.Text = ArgText, string(raw)
	return nil
}

// decodeTagged reads the objects that JSON needs for what Python writes as slices, Ellipsis and None.
func decodeTagged(raw []byte, a *Arg) error {
	var t struct {
		Int      *int64            `json:"int"`
		Slice    []json.RawMessage `json:"slice"`
		Ellipsis *bool             `json:"ellipsis"`
		None     *bool             `json:"none"`
		List     []int64           `json:"list"`
		Index    []int64           `json:"index"`
		DType    *string           `json:"dtype"`
	}
	switch err := json.Unmarshal(raw, &t); {
	case err != nil: // nested lists, booleans: some gather, which the operation refuses
		a.Kind, a.Text = ArgIndex, string(raw)
	case t.Int != nil:
		a.Kind, a.Int = ArgInt, *t.Int
	case t.Slice != nil:
		return decodeSlice(t.Slice, a)
	case t.Ellipsis != nil:
		a.Kind = ArgEllipsis
	case t.None != nil:
		a.Kind = ArgNewAxis
	case t.List != nil:
		a.Kind, a.Ints = ArgIndex, t.List
	case t.Index != nil:
		a.Kind, a.Ints = ArgIndex, t.Index
	case t.DType != nil:
		a.Kind, a.Text = ArgText, *t.DType
	default:
		a.Kind, a.Text = ArgText, string(raw)
	}
	return nil
}

// decodeSlice reads [start, stop, step] with nulls for what is absent.
func decodeSlice(bounds []json.RawMessage, a *Arg) error {
	if len(bounds) != 3 {
		return fmt.Errorf("a slice of %d values, expected 3", len(bounds))
	}
	a.Kind = ArgSlice
	for i, into := range []*int64{&a.Start, &a.Stop, &a.Step} {
		if string(bounds[i]) == "null" {
			continue
		}
		n, err := parseInt(bounds[i])
		if err != nil && !errors.Is(err, strconv.ErrRange) { // beyond 64 bits n is the last number there is, as in Python
			*a = Arg{Kind: ArgText, Text: fmt.Sprintf("a slice with the bound %.20s", bounds[i])} // the operation refuses it
			return nil
		}
		a.Has |= HasStart << i
		*into = n
	}
	return nil
}
