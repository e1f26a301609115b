package operator

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// inode identifies a file, whatever a process calls it.
type inode struct{ dev, ino uint64 }

func inodeOf(path string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return inode{}, fmt.Errorf("look at %s: %w", path, err)
	}
	return inode{st.Dev, st.Ino}, nil
}

// mapper is a process that maps a file.
type mapper struct {
	pid     int
	command string
}

func (m mapper) String() string { return fmt.Sprintf("%s[%d]", printable(m.command), m.pid) }

// mappers finds the processes that map some files, among those that this user may look at.
func mappers(files []inode) map[inode][]mapper {
	found := map[inode][]mapper{}
	for _, f := range files {
		found[f] = nil
	}
	if len(files) == 0 {
		return found
	}
	maps, _ := filepath.Glob("/proc/[0-9]*/maps") // the pattern is good
	for _, path := range maps {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		seen := mappedBy(path)
		for f := range found {
			if seen[f] {
				found[f] = append(found[f], mapper{pid, commandOf(pid)})
			}
		}
	}
	return found
}

// mappedBy reads the files of a process's mappings; nothing where that isn't allowed, or the process is gone.
func mappedBy(path string) map[inode]bool {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // only read
	seen := map[inode]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// address perms offset major:minor inode path
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			continue
		}
		var major, minor uint32
		if _, err := fmt.Sscanf(fields[3], "%x:%x", &major, &minor); err != nil {
			continue
		}
		if ino, err := strconv.ParseUint(fields[4], 10, 64); err == nil && ino != 0 {
			seen[inode{unix.Mkdev(major, minor), ino}] = true
		}
	}
	return seen
}

func commandOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(b))
}

// judgeUse notes who reads an arena: those that map it, but for its receiver.
func (r *ArenaRow) judgeUse(all []mapper) {
	lock, err := inodeOf(filepath.Join(filepath.Dir(filepath.Dir(r.Path)), "lock"))
	for _, m := range all {
		if err != nil || !hasOpen(m.pid, lock) {
			r.Readers = append(r.Readers, m.String())
		}
	}
	slices.Sort(r.Readers)
	// Its receiver has it open too, and would be taken for a reader.
	r.InUse = len(r.Readers) == 0 && r.Owner == "gone" && !leasable(r.Path)
}

// hasOpen says whether a process has a file open.
func hasOpen(pid int, file inode) bool {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is good
	return slices.ContainsFunc(links, func(link string) bool {
		id, err := inodeOf(link)
		return err == nil && id == file
	})
}

// leasable says whether the kernel grants a write lease, which it does only on a file that nobody else has open or
// mapped. Where it can't tell, the file counts as unused.
func leasable(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return true
	}
	defer func() { _ = f.Close() }() // gives the lease back
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	return !errors.Is(err, unix.EAGAIN)
}
