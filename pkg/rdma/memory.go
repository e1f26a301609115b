package rdma

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"golang.org/x/sys/unix"
)

// Backing says what stands behind a mapping.
type Backing uint8

const (
	// Memfd is a nameless file in memory, sealed against resizing. Nothing of it outlives its processes.
	Memfd Backing = iota
	// File is a named file, as arenas are that engines map too.
	File
	// Anonymous is private memory: no other process can map it.
	Anonymous
	// Foreign is memory that somebody else owns, known by address and device only.
	Foreign
)

// String names the backing.
func (b Backing) String() string {
	return [...]string{"memfd", "file", "anonymous", "foreign"}[b]
}

// Memory is one mapping of fixed address and length. Close refuses while anybody holds it.
type Memory struct {
	backing Backing
	bytes   []byte
	span    []byte // what is unmapped: bytes, or the larger range that they lie aligned in
	addr    uint64
	nbytes  int64
	device  string
	path    string
	fd      int // -1 where there is none
	ino     uint64
	dev     uint64

	mu     sync.Mutex
	holds  int
	closed bool
}

// Bytes is the whole mapping; nil for foreign memory. Touching it after Close faults.
func (m *Memory) Bytes() []byte { return m.bytes }

// Len is the length in bytes.
func (m *Memory) Len() int64 { return m.nbytes }

// Addr is the virtual (or device) address of the first byte.
func (m *Memory) Addr() uint64 { return m.addr }

// Device is "" for host memory, else kind and index, such as "cuda:0".
func (m *Memory) Device() string { return m.device }

// Backing says what stands behind the mapping.
func (m *Memory) Backing() Backing { return m.backing }

// Path is the file's name; "" unless the backing is File.
func (m *Memory) Path() string { return m.path }

// FD is the open file behind the mapping, -1 where there is none. It belongs to the memory: don't close it, and use
// it only while holding the memory.
func (m *Memory) FD() int { return m.fd }

// Inode identifies the file behind the mapping (device and inode number), zero where there is none.
func (m *Memory) Inode() (dev, ino uint64) { return m.dev, m.ino }

// ForeignMemory describes memory that somebody else owns and keeps alive: nbytes at addr on a device such as "cuda:0".
// Only transports that move device memory accept it.
func ForeignMemory(addr uint64, nbytes int64, device string) (*Memory, error) {
	if addr == 0 || nbytes <= 0 || device == "" {
		return nil, fmt.Errorf("describe foreign memory: address %#x, %d bytes, device %q", addr, nbytes, device)
	}
	return &Memory{backing: Foreign, addr: addr, nbytes: nbytes, device: device, fd: -1}, nil
}

// Hold keeps the memory from being closed until release is called, once or more often.
func (m *Memory) Hold() (release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("hold memory of %d bytes: %w", m.nbytes, ErrClosed)
	}
	m.holds++
	return sync.OnceFunc(m.release), nil
}

func (m *Memory) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds--
}

// Holds counts regions and transfers that use the memory now.
func (m *Memory) Holds() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.holds
}

// Close unmaps. It answers ErrBusy, and does nothing, while the memory is held. A named file stays where it is.
// Idempotent.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	if m.holds > 0 {
		return fmt.Errorf("close memory of %d bytes: %w by %d regions and transfers", m.nbytes, ErrBusy, m.holds)
	}
	m.closed = true
	return m.unmap()
}

func (m *Memory) unmap() error {
	var errs []error
	if m.bytes != nil {
		errs = append(errs, unix.Munmap(m.span))
		m.bytes, m.span = nil, nil
	}
	if m.fd >= 0 {
		errs = append(errs, unix.Close(m.fd))
		m.fd = -1
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", m.nbytes, err)
	}
	return nil
}

// address gives the address of a mapping without package unsafe.
func address(b []byte) uint64 { return uint64(reflect.ValueOf(b).Pointer()) }
