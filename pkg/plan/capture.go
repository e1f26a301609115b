package plan

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// CaptureSchema names the file format that DecodeCapture reads.
const CaptureSchema = "drydock.capture.v1"

// Limits of a capture. The largest known one has 24,000 copies.
const (
	MaxCaptureBytes  = 1 << 30 // of JSON, once decompressed
	maxCaptureCases  = 1 << 14
	maxCaptureItems  = 1 << 22 // sources, or parameters, copies or fills of one case
	maxCaptureOps    = 64      // of one copy
	maxCaptureName   = 1 << 12 // bytes
	maxCaptureReason = 1 << 14 // bytes
)

// ErrCapture is wrapped by every error about a capture's form. Nothing of it is kept.
var ErrCapture = errors.New("bad capture")

// Capture is a decoded drydock.capture.v1 file: what real loaders copy where, per simulated rank.
type Capture struct {
	Engine  string
	Family  string
	Config  json.RawMessage
	Sources []CaptureSource
	Cases   []CaptureCase
}

// CaptureSource is one tensor of the checkpoint.
type CaptureSource struct {
	Name  string
	DType DType
	Shape []int64
}

// CaptureCase is one simulated rank.
type CaptureCase struct {
	Arch     string
	TP, Rank int
	EP       bool // expert parallel over the same ranks
	Params   []CaptureParam
	Copies   []Copy
	Fills    []Fill
	Alias    map[string]string
	Unread   []string // sources that the rank does not read
}

// CaptureParam is a parameter with the digests of its bytes after the real loader ran, hex.
type CaptureParam struct {
	Param
	XXH3   string
	SHA256 string
}

// DecodeCapture reads a capture, gzipped or not, within limits.
func DecodeCapture(b []byte) (*Capture, error) {
	if len(b) > 2 && b[0] == 0x1f && b[1] == 0x8b {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("plan: %w: gzip: %w", ErrCapture, err)
		}
		if b, err = io.ReadAll(io.LimitReader(z, MaxCaptureBytes+1)); err != nil {
			return nil, fmt.Errorf("plan: %w: gzip: %w", ErrCapture, err)
		}
	}
	if len(b) > MaxCaptureBytes {
		return nil, fmt.Errorf("plan: %w: more than %d bytes of JSON", ErrCapture, MaxCaptureBytes)
	}
	var f captureFile
	if err := json.Unmarshal(quoteNonFinite(b), &f); err != nil {
		return nil, fmt.Errorf("plan: %w: %w", ErrCapture, err)
	}
	d := captureDecoder{ops: map[string][]Op{}, lists: map[string][]int64{}}
	c, err := d.file(&f)
	if err != nil {
		return nil, fmt.Errorf("plan: %w: %w", ErrCapture, err)
	}
	return c, nil
}

// Case returns the simulated rank, if the capture has it.
func (c *Capture) Case(tp, rank int, ep bool) (*CaptureCase, bool) {
	for i := range c.Cases {
		if k := &c.Cases[i]; k.TP == tp && k.Rank == rank && k.EP == ep {
			return k, true
		}
	}
	return nil, false
}

// cases lists the capture's cases for people: rank of tensor-parallel size, ep for expert parallel.
func (c *Capture) cases() string {
	const shown = 12
	var parts []string
	for i := range c.Cases {
		if i == shown {
			parts = append(parts, fmt.Sprintf("and %d more", len(c.Cases)-shown))
			break
		}
		k := &c.Cases[i]
		s := fmt.Sprintf("%d of %d", k.Rank, k.TP)
		if k.EP {
			s += " ep"
		}
		parts = append(parts, s)
	}
	if len(parts) == 0 {
		return "none"
	}
	return "ranks " + strings.Join(parts, ", ")
}

// Dest returns what the given rank needs. Parameters are not laid out: every Offset is 0. Copies share
// their slices with the capture.
func (c *Capture) Dest(tp, rank int, ep bool) (Dest, error) {
	k, ok := c.Case(tp, rank, ep)
	if !ok {
		return Dest{}, fmt.Errorf("plan: capture of %q has no case for tensor parallel %d, rank %d, expert parallel %t; it has %s",
			c.Family, tp, rank, ep, c.cases())
	}
	return k.Dest(), nil
}

// Dest returns what the rank of the case needs, as Capture.Dest does.
func (k *CaptureCase) Dest() Dest {
	d := Dest{Rank: k.Rank, Reorders: true, Copies: k.Copies, Fills: k.Fills, Alias: k.Alias}
	for i := range k.Params {
		d.Params = append(d.Params, k.Params[i].Param)
	}
	return d
}
