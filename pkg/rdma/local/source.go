package local

import (
	"errors"
	"fmt"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/strided"
)

// source is one region of a publisher, ready to be copied from.
type source struct {
	bytes []byte // mapped; nil: read by process_vm_readv
	pid   int
	base  uint64
}

// openSource maps a region, or prepares to ask the kernel for its bytes.
func openSource(pid uint32, r *regionAccess) (*source, error) {
	if r.File.FD < 0 {
		s := &source{pid: int(pid), base: r.Base}
		return s, s.probe()
	}
	fd, err := r.File.open(pid)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // the mapping stays
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat the region's file: %w", err)
	}
	if st.Size < r.Nbytes {
		return nil, fmt.Errorf("the region's file has %d bytes, %d were announced", st.Size, r.Nbytes)
	}
	b, err := unix.Mmap(fd, 0, int(r.Nbytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the region: %w", err)
	}
	return &source{bytes: b}, nil
}

func (s *source) close() error {
	if s.bytes == nil {
		return nil
	}
	b := s.bytes
	s.bytes = nil
	return unix.Munmap(b)
}

// copy moves segments; what it leaves behind on an error is undefined within the segments.
func (s *source) copy(dst []byte, segs []rdma.Segment) error {
	if s.bytes == nil {
		return s.vmread(dst, segs)
	}
	return guarded(func() {
		for i := range segs {
			strided.Copy(dst, s.bytes, &segs[i])
		}
	})
}

var errFault = errors.New("the memory's file was cut short under its mapping")

// guarded turns a fault of f's memory accesses, as a shortened file causes, into an error.
func guarded(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			fault, ok := r.(interface{ Addr() uintptr })
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("%w (fault at %#x)", errFault, fault.Addr())
		}
	}()
	f()
	return nil
}

// maxIovecs is the kernel's limit of one call.
const maxIovecs = 1024

func (s *source) vmread(dst []byte, segs []rdma.Segment) error {
	v := vector{s: s, dst: dst}
	for i := range segs {
		if err := v.add(&segs[i]); err != nil {
			return err
		}
	}
	return v.flush()
}

// probe asks for one byte, to learn whether the kernel allows more.
func (s *source) probe() error {
	v := vector{s: s, dst: make([]byte, 1)}
	one := rdma.Contiguous(0, 0, 0, 1)
	return errors.Join(v.add(&one), v.flush())
}

// vector gathers runs for one call.
type vector struct {
	s      *source
	dst    []byte
	local  []unix.Iovec
	remote []unix.RemoteIovec
	nbytes int
}

func (v *vector) add(s *rdma.Segment) error {
	for i := range s.N[0] {
		for j := range s.N[1] {
			for k := range s.N[2] {
				from := s.Src + i*s.SrcStride[0] + j*s.SrcStride[1] + k*s.SrcStride[2]
				to := s.Dst + i*s.DstStride[0] + j*s.DstStride[1] + k*s.DstStride[2]
				if err := v.run(from, v.dst[to:to+s.Run]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (v *vector) run(from int64, to []byte) error {
	iov := unix.Iovec{Base: &to[0]}
	iov.SetLen(len(to))
	v.local = append(v.local, iov)
	v.remote = append(v.remote, unix.RemoteIovec{Base: uintptr(v.s.base + uint64(from)), Len: len(to)})
	v.nbytes += len(to)
	if len(v.local) == maxIovecs {
		return v.flush()
	}
	return nil
}

func (v *vector) flush() error {
	if v.nbytes == 0 {
		return nil
	}
	n, err := unix.ProcessVMReadv(v.s.pid, v.local, v.remote, 0)
	if err != nil {
		return fmt.Errorf("read the memory of process %d: %w", v.s.pid, err)
	}
	if n != v.nbytes {
		return fmt.Errorf("read the memory of process %d: %d of %d bytes", v.s.pid, n, v.nbytes)
	}
	v.local, v.remote, v.nbytes = v.local[:0], v.remote[:0], 0
	return nil
}
