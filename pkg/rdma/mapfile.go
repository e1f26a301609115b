package rdma

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// MapOptions says how MapFile maps. The zero value maps for reading, and faults every page in.
type MapOptions struct {
	Writable  bool // map for reading and writing, and reserve holes now
	Lazy      bool // leave pages to be faulted in at first touch
	HugePages bool // as AllocOptions.HugePages
}

// MapFile adopts an existing regular file, whole. Whoever shortens the file while it is mapped makes readers of the
// lost pages fault: adopt only files whose writers keep their size.
func MapFile(path string, o MapOptions) (*Memory, error) {
	m, err := mapFile(path, o)
	if err != nil {
		return nil, fmt.Errorf("map file: %w", err)
	}
	return m, nil
}

func mapFile(path string, o MapOptions) (*Memory, error) {
	flags, prot := unix.O_RDONLY, unix.PROT_READ
	if o.Writable {
		flags, prot = unix.O_RDWR, unix.PROT_READ|unix.PROT_WRITE
	}
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	m, err := adopt(fd, prot, path, o)
	if err != nil {
		discard(m, fd, "")
		return nil, err
	}
	return m, nil
}

func adopt(fd, prot int, path string, o MapOptions) (*Memory, error) {
	nbytes, err := regularSize(fd, path)
	if err != nil {
		return nil, err
	}
	if o.Writable {
		if err := reserve(fd, nbytes, path); err != nil {
			return nil, err
		}
	}
	m, err := mapping(fd, nbytes, prot, o.HugePages)
	if err != nil {
		return nil, err
	}
	m.backing, m.path = File, path
	if o.Writable {
		return m, m.ready(AllocOptions{Backing: File, HugePages: o.HugePages, Lazy: o.Lazy})
	}
	if o.Lazy {
		return m, nil
	}
	return m, prefault(m.bytes, false)
}

func regularSize(fd int, path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, fmt.Errorf("%s is not a regular file", path)
	}
	if st.Size <= 0 || st.Size > math.MaxInt {
		return 0, fmt.Errorf("%s has %d bytes", path, st.Size)
	}
	return st.Size, nil
}
