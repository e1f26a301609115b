package local

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// The control page of a publisher: magic[8] | state u8 | length u8 | incarnation[…128] | region states from byte 256.
const (
	controlMagic  = "DRYLOCL1"
	controlState  = 8
	controlNamLen = 9
	controlName   = 10
	controlStates = 256
	controlBytes  = controlStates + maxRegions
	maxName       = 128
)

// States of the endpoint and of each region. Zero is what a page holds that nobody wrote.
const (
	stateServed    byte = 1
	stateWithdrawn byte = 2
)

// control is the publisher's side. Each state is one byte, so that a reader sees the old or the new one.
type control struct {
	mem *rdma.Memory
	mu  sync.Mutex
}

func newControl(incarnation string) (*control, error) {
	mem, err := rdma.Alloc(controlBytes, rdma.AllocOptions{Name: "drydock-control"})
	if err != nil {
		return nil, fmt.Errorf("make the control page: %w", err)
	}
	b := mem.Bytes()
	copy(b, controlMagic)
	b[controlNamLen] = byte(len(incarnation))
	copy(b[controlName:], incarnation)
	b[controlState] = stateServed
	return &control{mem: mem}, nil
}

func (c *control) set(region uint32, state byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.mem.Bytes(); b != nil && region < maxRegions {
		b[controlStates+region] = state
	}
}

func (c *control) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.mem.Bytes(); b != nil {
		b[controlState] = stateWithdrawn
	}
	return c.mem.Close()
}

// view is the reader's side: a descriptor that outlives the publisher. It is read by system calls, which always give
// what the page holds now.
type view struct{ fd int }

var errNotControl = errors.New("not a control page")

// incarnation tells whose page it is.
func (v view) incarnation() (string, error) {
	var b [controlStates]byte
	if n, err := unix.Pread(v.fd, b[:], 0); err != nil || n != len(b) {
		return "", errNotControl
	}
	if !bytes.HasPrefix(b[:], []byte(controlMagic)) || int(b[controlNamLen]) > maxName {
		return "", errNotControl
	}
	return string(b[controlName:][:b[controlNamLen]]), nil
}

// served says whether a region may be read now.
func (v view) served(region uint32) (bool, error) {
	s, err := v.at(controlStates + int64(region))
	return s == stateServed, err
}

// open says whether the endpoint is open.
func (v view) open() (bool, error) {
	s, err := v.at(controlState)
	return s == stateServed, err
}

func (v view) at(off int64) (byte, error) {
	var b [1]byte
	n, err := unix.Pread(v.fd, b[:], off)
	if err != nil || n != 1 {
		return 0, fmt.Errorf("read the control page at %d: %w", off, errors.Join(err, errNotControl))
	}
	return b[0], nil
}
