package rdma

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// AllocOptions says what memory Alloc makes. The zero value is a sealed, pre-faulted memfd.
type AllocOptions struct {
	Backing   Backing     // default Memfd; Foreign is not made but described, by ForeignMemory
	Name      string      // of a memfd as /proc shows it; default "drydock"
	Path      string      // of a File; it must not exist
	Mode      fs.FileMode // of a File; default 0o600
	HugePages bool        // put it on huge pages; where the kernel has none to give, small ones serve
	Lazy      bool        // leave pages to be faulted in at first touch, at some ten times the cost of a copy
}

func (o *AllocOptions) validate(nbytes int64) error {
	switch {
	case nbytes <= 0 || nbytes > math.MaxInt:
		return fmt.Errorf("%d bytes", nbytes)
	case o.Backing > Anonymous:
		return fmt.Errorf("backing %s can't be allocated", o.Backing)
	case (o.Path != "") != (o.Backing == File):
		return fmt.Errorf("path %q with backing %s", o.Path, o.Backing)
	}
	if o.Name == "" {
		o.Name = "drydock"
	}
	if o.Mode == 0 {
		o.Mode = 0o600
	}
	return nil
}

// Alloc makes zeroed memory of nbytes. It fails, and leaves nothing behind, when the room isn't there: pages are
// reserved before they are mapped, so that a full file system is an error here and not a signal later.
func Alloc(nbytes int64, o AllocOptions) (*Memory, error) {
	if err := o.validate(nbytes); err != nil {
		return nil, fmt.Errorf("allocate memory: %w", err)
	}
	m, err := allocate(nbytes, o)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes (%s): %w", nbytes, o.Backing, err)
	}
	return m, nil
}

func allocate(nbytes int64, o AllocOptions) (*Memory, error) {
	if o.Backing != File {
		if err := checkAvailable(nbytes); err != nil {
			return nil, err
		}
	}
	fd, err := create(nbytes, o)
	if err != nil {
		return nil, err
	}
	m, err := mapping(fd, nbytes, unix.PROT_READ|unix.PROT_WRITE, o.HugePages)
	if err == nil {
		m.backing, m.path = o.Backing, o.Path
		err = m.ready(o)
	}
	if err != nil {
		discard(m, fd, o.Path)
		return nil, err
	}
	return m, nil
}

// ready faults the pages in, as huge ones where that is asked for and can be.
func (m *Memory) ready(o AllocOptions) error {
	if o.HugePages {
		_ = unix.Madvise(m.bytes, unix.MADV_HUGEPAGE) // a wish: kernels without it refuse
	}
	if o.Lazy {
		return nil
	}
	if err := prefault(m.bytes, true); err != nil {
		return err
	}
	if o.HugePages && o.Backing != Anonymous { // room was reserved in small pages before anybody could ask
		_ = collapse(m.bytes) // HugeBytes tells what came of it
	}
	return nil
}

// create makes the file behind the mapping with all its room reserved; -1 for anonymous memory.
func create(nbytes int64, o AllocOptions) (int, error) {
	switch o.Backing {
	case Memfd:
		return createMemfd(nbytes, o.Name)
	case File:
		return createFile(nbytes, o.Path, o.Mode)
	default:
		return -1, nil
	}
}

// createMemfd seals the size: a reader that maps a sealed memfd can't be sent a SIGBUS by its owner.
func createMemfd(nbytes int64, name string) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("create memfd: %w", err)
	}
	if err := unix.Ftruncate(fd, nbytes); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("size memfd: %w", err)
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("seal memfd: %w", err)
	}
	return fd, nil
}

func createFile(nbytes int64, path string, mode fs.FileMode) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, uint32(mode.Perm()))
	if err != nil {
		return -1, &os.PathError{Op: "create", Path: path, Err: err}
	}
	err = checkRoom(fd, nbytes, path)
	if err == nil {
		err = reserve(fd, nbytes, path)
	}
	if err != nil {
		discard(nil, fd, path)
		return -1, err
	}
	return fd, nil
}

// reserveStep is small enough for a fallocate to end between two of the runtime's preemption signals, which
// interrupt it and make the kernel undo the call.
const reserveStep = 64 << 20

// checkRoom asks before it takes: filling a file system to its last block hurts everybody else on it, and a tmpfs may
// promise more than the host's memory.
func checkRoom(fd int, nbytes int64, path string) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return fmt.Errorf("ask for the room of %s: %w", path, err)
	}
	if int64(st.Bavail)*st.Bsize < nbytes {
		return noRoom(fd, nbytes, 0, path)
	}
	if st.Type == unix.TMPFS_MAGIC {
		return checkAvailable(nbytes)
	}
	return nil
}

// reserve takes the room of a file now. On a full file system it says how much is missing.
func reserve(fd int, nbytes int64, path string) error {
	for off := int64(0); off < nbytes; {
		err := unix.Fallocate(fd, 0, off, min(reserveStep, nbytes-off))
		switch {
		case err == nil:
			off += reserveStep
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOSPC):
			return noRoom(fd, nbytes, off, path)
		default:
			return fmt.Errorf("reserve room for %s: %w", path, err)
		}
	}
	return nil
}

func noRoom(fd int, nbytes, got int64, path string) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return fmt.Errorf("no room for %s: %w", path, unix.ENOSPC)
	}
	free := int64(st.Bavail)*st.Bsize + got
	return fmt.Errorf("no room for %s: %d bytes needed, %d free, %d missing: %w", path, nbytes, free, nbytes-free, unix.ENOSPC)
}

// mapping maps nbytes of fd, or of nothing where fd is -1, at an address for huge pages if these are wanted. It takes over fd
// only on success.
func mapping(fd int, nbytes int64, prot int, huge bool) (*Memory, error) {
	flags := unix.MAP_SHARED
	if fd < 0 {
		flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	}
	b, span, err := mapBytes(fd, nbytes, prot, flags, huge)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", nbytes, err)
	}
	m := &Memory{bytes: b, span: span, addr: address(b), nbytes: nbytes, fd: fd}
	if fd >= 0 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			_ = unix.Munmap(span)
			return nil, fmt.Errorf("stat the mapped file: %w", err)
		}
		m.dev, m.ino = st.Dev, st.Ino
	}
	return m, nil
}

// mapBytes maps where the kernel likes, or aligned; span is what is to be unmapped.
func mapBytes(fd int, nbytes int64, prot, flags int, huge bool) (b, span []byte, err error) {
	if huge && nbytes >= HugePageBytes {
		if b, span, err = mapAligned(fd, nbytes, prot, flags); err == nil {
			return b, span, nil
		}
	}
	b, err = unix.Mmap(fd, 0, int(nbytes), prot, flags)
	return b, b, err
}

// discard undoes a half-made allocation.
func discard(m *Memory, fd int, path string) {
	if m != nil {
		_ = m.unmap()
	} else if fd >= 0 {
		_ = unix.Close(fd)
	}
	if path != "" {
		_ = unix.Unlink(path)
	}
}
