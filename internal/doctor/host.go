package doctor

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

const gib = 1 << 30

// meminfo gives a line of /proc/meminfo in bytes.
func meminfo(o *Options, key string) (int64, error) {
	f, err := os.Open(filepath.Join(o.Proc, "meminfo"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), key+":"); ok {
			var kib int64
			_, err := fmt.Sscanf(rest, "%d kB", &kib)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in %s/meminfo", key, o.Proc)
}

func memory(o *Options) Finding {
	total, err := meminfo(o, "MemTotal")
	if err != nil {
		return finding(Warn, err.Error(), "make /proc readable: without it memory isn't checked before it is taken")
	}
	avail, err := meminfo(o, "MemAvailable")
	if err != nil {
		return finding(Warn, err.Error(), "make /proc readable: without it memory isn't checked before it is taken")
	}
	return good("%.1f GiB of %.1f GiB available", float64(avail)/gib, float64(total)/gib)
}

// sharedMemory: arenas are named files there, two for each rank.
func sharedMemory(o *Options) Finding {
	var st unix.Statfs_t
	if err := unix.Statfs(o.Shm, &st); err != nil {
		return finding(Fail, fmt.Sprintf("%s: %v", o.Shm, err), "mount a tmpfs on /dev/shm, or keep arenas on another tmpfs")
	}
	size, free := int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	found := fmt.Sprintf("%s: %.1f GiB free of %.1f GiB", o.Shm, float64(free)/gib, float64(size)/gib)
	total, err := meminfo(o, "MemTotal")
	if size < gib || err == nil && size < total/4 {
		return finding(Warn, found, "two arenas of every rank must fit: in a container raise --shm-size or mount an emptyDir of medium Memory, else mount -o remount,size=… /dev/shm")
	}
	if err == nil && size > total {
		return finding(Warn, found+", more than the host's memory", "fill it no further than memory goes: what lies there isn't reclaimed, also after its owner's end")
	}
	return good("%s", found)
}

func sealedMemfd(*Options) Finding {
	m, err := rdma.Alloc(1<<20, rdma.AllocOptions{})
	if err != nil {
		return finding(Fail, err.Error(), "a kernel of 3.17 or later is needed, and memory for a megabyte")
	}
	if err := m.Close(); err != nil {
		return finding(Fail, err.Error(), "")
	}
	return good("memory is allocated, sealed and faulted in")
}

// hugePages: whether the arenas of a receiver would get some, which is tried, and what the kernel's settings are.
func hugePages(o *Options) Finding {
	dir := filepath.Join(o.Sys, "kernel/mm/transparent_hugepage")
	settings := fmt.Sprintf("settings: %s for anonymous, %s for shared memory", chosen(filepath.Join(dir, "enabled")), chosen(filepath.Join(dir, "shmem_enabled")))
	const n = 4 * rdma.HugePageBytes
	folder, err := os.MkdirTemp(o.Shm, "drydock-doctor-")
	if err != nil {
		return finding(None, fmt.Sprintf("not tried: %v; %s", err, settings), "")
	}
	defer func() { _ = os.RemoveAll(folder) }()
	m, err := rdma.Alloc(n, rdma.AllocOptions{Backing: rdma.File, Path: filepath.Join(folder, "arena"), HugePages: true})
	if err != nil {
		return finding(None, fmt.Sprintf("not tried: %v; %s", err, settings), "")
	}
	defer func() { _ = m.Close() }()
	got, err := m.HugeBytes()
	if err != nil || got == 0 {
		return finding(None, "arenas get none here; "+settings,
			"a kernel of 6.1 or later gives them to receiver --huge-pages, or mount the arenas' tmpfs with huge=advise")
	}
	return good("arenas get them with receiver --huge-pages (%d of %d bytes tried); %s", got, n, settings)
}

// chosen reads the bracketed word of a kernel setting.
func chosen(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	_, rest, ok := strings.Cut(string(b), "[")
	word, _, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		return strings.TrimSpace(string(b))
	}
	return word
}

func lockedMemory(*Options) Finding {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return finding(Warn, err.Error(), "")
	}
	if r.Cur == unix.RLIM_INFINITY {
		return good("unlimited")
	}
	return finding(Warn, fmt.Sprintf("%d bytes", r.Cur), "RDMA cards pin what is registered: ulimit -l unlimited, LimitMEMLOCK=infinity, or the container's capability IPC_LOCK. Without a card nothing is pinned")
}

// fileLimit holds some hundred sources with a few connections each, and their regions.
const fileLimit = 4096

func openFiles(*Options) Finding {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return finding(Warn, err.Error(), "")
	}
	if r.Cur < fileLimit {
		return finding(Warn, fmt.Sprintf("%d", r.Cur), fmt.Sprintf("ulimit -n %d or more: each source takes a few connections, each region a descriptor", fileLimit))
	}
	return good("%d", r.Cur)
}

// clock asks the kernel whether something disciplines the clock: leases don't depend on it, traces do.
func clock(*Options) Finding {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return finding(Warn, err.Error(), "")
	}
	const timeError = 5 // TIME_ERROR: not synchronised
	if state == timeError {
		return finding(Warn, "not synchronised", "run chrony or ntpd: spans of one version come from several hosts, and are ordered by their clocks")
	}
	return good("synchronised, estimated error %v", time.Duration(t.Esterror)*time.Microsecond)
}
