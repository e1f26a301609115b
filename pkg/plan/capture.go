package plan

import "errors"

// Capture is a decoded drydock.capture.v1 file: what real loaders copy where, per simulated rank.
type Capture struct {
	Engine, Family, Arch string
	Cases                []CaptureCase
}

// CaptureCase names one simulated rank.
type CaptureCase struct {
	TP, Rank int
	EP       bool
}

// DecodeCapture reads a capture, gzipped or not, within limits.
func DecodeCapture(b []byte) (*Capture, error) { return nil, errors.New("plan: not built yet") }

// Dest returns what the given rank needs. Parameters are not laid out: every Offset is 0.
func (c *Capture) Dest(tp, rank int, ep bool) (Dest, error) {
	return Dest{}, errors.New("plan: not built yet")
}
