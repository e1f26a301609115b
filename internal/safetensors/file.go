package safetensors

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// File is an open file, mapped read-only. Views into it die with Close.
type File struct {
	Header
	path   string
	mapped []byte
}

// Open maps the file at path and checks its header.
func Open(path string) (*File, error) {
	mapped, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, mapped: mapped}
	h, err := Parse(path, f, int64(len(mapped)))
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	f.Header = *h
	return f, nil
}

// mapFile maps the whole file; the descriptor isn't needed afterwards.
func mapFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe of that name would be waited for, for ever
	if err != nil {
		return nil, fmt.Errorf("open safetensors file: %w", err)
	}
	defer func() { _ = f.Close() }() // the mapping outlives the descriptor
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat safetensors file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open safetensors file %s: found %s, expected a regular file", path, info.Mode().Type())
	}
	if info.Size() < lengthBytes { // an empty file can't be mapped
		return nil, &Error{
			File: path, Kind: ErrTruncated, Found: fmt.Sprintf("%d bytes", info.Size()),
			Expected: "8 bytes of header length first",
		}
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of %s: %w", info.Size(), path, err)
	}
	return mapped, nil
}

// Path is the name that the file was opened by.
func (f *File) Path() string { return f.path }

// Find returns the tensor of that name.
func (f *File) Find(name string) (Tensor, bool) {
	i, found := slices.BinarySearchFunc(f.Tensors, name, func(t Tensor, name string) int { return cmp.Compare(t.Name, name) })
	if !found {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// Bytes is a read-only view of the tensor's bytes; writing to it faults. Valid until Close.
func (f *File) Bytes(t Tensor) []byte {
	end := t.Offset + t.Nbytes // inside the mapping: Parse proved it
	return f.mapped[t.Offset:end:end]
}

// ReadAt copies bytes of the whole file, header included (io.ReaderAt).
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read %s: negative offset %d", f.path, off)
	}
	if off >= int64(len(f.mapped)) {
		return 0, io.EOF
	}
	n := copy(p, f.mapped[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Close unmaps the file. It may be repeated.
func (f *File) Close() error {
	if f.mapped == nil {
		return nil
	}
	mapped := f.mapped
	f.mapped = nil
	if err := unix.Munmap(mapped); err != nil {
		return fmt.Errorf("unmap %s: %w", f.path, err)
	}
	return nil
}
