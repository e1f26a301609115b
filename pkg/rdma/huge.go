package rdma

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Huge pages spare the processor's table of addresses: a gigabyte is 512 of them, or 262,144 small ones. Shared memory gets
// them in two ways, and both want the mapping to begin where a huge page may:
//
//   - at the first touch, where the mount (huge=) or the kernel's shmem_enabled says so and, for "advise", the mapping asked;
//   - afterwards, by MADV_COLLAPSE (kernels from 6.1), whatever these settings say short of "deny". It moves the bytes that
//     are there: the content and the addresses stay.
//
// Nothing here fails an allocation: where the kernel gives none, small pages serve.

// HugePageBytes is a huge page of the architectures that Drydock runs on.
const HugePageBytes = 2 << 20

// mapAligned is mmap at an address that a huge page may begin at. It takes an address range first and puts the mapping into
// it, so that nothing else can come in between; span is that range, to be unmapped in place of the mapping.
func mapAligned(fd int, nbytes int64, prot, flags int) (b, span []byte, err error) {
	span, err = unix.Mmap(-1, 0, int(nbytes)+HugePageBytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, nil, err
	}
	skip := (HugePageBytes - address(span)%HugePageBytes) % HugePageBytes
	b = span[skip:][:nbytes:nbytes]
	if _, err := unix.MmapPtr(fd, 0, reflect.ValueOf(b).UnsafePointer(), uintptr(nbytes), prot, flags|unix.MAP_FIXED); err != nil {
		return nil, nil, errors.Join(err, unix.Munmap(span))
	}
	return b, span, nil
}

// collapse moves pages that are there into huge ones, on all cores. The first refusal ends it: what holds for one part of a
// mapping holds for the rest.
func collapse(b []byte) error {
	var g errgroup.Group
	g.SetLimit(prefaultCores())
	b = b[:len(b)/HugePageBytes*HugePageBytes]
	for off := 0; off < len(b); off += prefaultStep {
		part := b[off:min(off+prefaultStep, len(b))]
		g.Go(func() error {
			for {
				err := unix.Madvise(part, unix.MADV_COLLAPSE)
				if !errors.Is(err, unix.EINTR) {
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("collapse pages into huge ones: %w", err)
	}
	return nil
}

// HugeBytes is how much of the mapping stands on huge pages now, by the kernel's own count.
func (m *Memory) HugeBytes() (int64, error) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0, fmt.Errorf("count huge pages: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	var sum int64
	inside := false
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := sc.Text()
		if lo, hi, is := mapsRange(line); is { // one mapping may be shown in several parts
			inside = lo >= m.addr && hi <= m.addr+uint64(roundUp(m.nbytes, int64(os.Getpagesize())))
			continue
		}
		name, rest, _ := strings.Cut(line, ":")
		if !inside || name != "AnonHugePages" && name != "ShmemPmdMapped" && name != "FilePmdMapped" {
			continue
		}
		var kib int64
		if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
			return 0, fmt.Errorf("count huge pages: read %q: %w", line, err)
		}
		sum += kib << 10
	}
	return sum, nil
}

// mapsRange reads the addresses at the begin of a mapping's first line.
func mapsRange(line string) (lo, hi uint64, is bool) {
	first, _, _ := strings.Cut(line, " ")
	if _, err := fmt.Sscanf(first, "%x-%x", &lo, &hi); err != nil {
		return 0, 0, false
	}
	return lo, hi, true
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
