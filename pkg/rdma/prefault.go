package rdma

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// prefaultStep keeps one call short, for the reason of reserveStep, and feeds all cores.
const prefaultStep = 32 << 20

// prefault makes every page present, for writing where write is set, on several cores.
func prefault(b []byte, write bool) error {
	var g errgroup.Group
	g.SetLimit(prefaultCores())
	for off := 0; off < len(b); off += prefaultStep {
		part := b[off:min(off+prefaultStep, len(b))]
		g.Go(func() error { return populate(part, write) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("fault in %d bytes: %w", len(b), err)
	}
	return nil
}

// prefaultCores is how many cores touch memory at once: beyond eight the kernel's own locks are what is waited for.
func prefaultCores() int { return min(runtime.GOMAXPROCS(0), 8) }

func populate(b []byte, write bool) error {
	advice := unix.MADV_POPULATE_READ
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	for {
		err := unix.Madvise(b, advice)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
		case errors.Is(err, unix.EINVAL):
			touch(b) // kernels before 5.14
			return nil
		default:
			return err
		}
	}
}

// touch reads one byte of each page. That maps pages of files; new anonymous pages still fault at their first write,
// because writing here could undo what another process has written meanwhile.
func touch(b []byte) byte {
	var sum byte
	for i := 0; i < len(b); i += os.Getpagesize() {
		sum += b[i]
	}
	return sum
}

// checkAvailable refuses what the host can't hold: memory that is only promised ends in the kernel's out-of-memory
// killer, which takes a process and gives no reason.
func checkAvailable(nbytes int64) error {
	avail, err := availableMemory()
	if err != nil || nbytes <= avail {
		return nil //nolint:nilerr // without the figure the allocation itself decides
	}
	return fmt.Errorf("%d bytes needed, %d available, %d missing: %w", nbytes, avail, nbytes-avail, unix.ENOMEM)
}

func availableMemory() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), "MemAvailable:"); ok {
			var kib int64
			_, err := fmt.Sscanf(rest, "%d kB", &kib)
			return kib << 10, err
		}
	}
	return 0, errors.New("no MemAvailable in /proc/meminfo")
}
