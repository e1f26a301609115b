package operator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
)

// ArenaRow is one file: the parameters of one rank, in one slot of one receiver.
type ArenaRow struct {
	Receiver string   `json:"receiver"` // name of its folder
	Slot     string   `json:"slot"`
	Rank     int      `json:"rank"`
	Path     string   `json:"path"`
	Nbytes   int64    `json:"nbytes"`
	Model    string   `json:"model,omitempty"`
	Version  string   `json:"version,omitempty"`
	State    string   `json:"state"`              // "serving", "sealed": whole, not serving; "unsealed": free or being staged into; "invalid"
	Owner    string   `json:"owner"`              // "alive", "gone"
	Readers  []string `json:"readers"`            // other processes that map it, as far as this user may see them
	InUse    bool     `json:"in_use,omitempty"`   // nobody owns it, and somebody has it open whom this user can't see
	Verified int64    `json:"verified,omitempty"` // bytes that are as they were when they came; only where that was asked for
	Problem  string   `json:"problem,omitempty"`
}

// ArenaList is the answer of refitctl arenas.
type ArenaList struct {
	Dir     string        `json:"dir"`
	Arenas  []ArenaRow    `json:"arenas"`
	Removed []RemovedSlot `json:"removed,omitempty"`
}

// RemovedSlot is a slot that was removed.
type RemovedSlot struct {
	Path   string `json:"path"`
	Nbytes int64  `json:"nbytes"`
}

var (
	slotName = regexp.MustCompile(`^slot-\d+$`)
	rankName = regexp.MustCompile(`^rank-(\d+)\.safetensors$`)
)

// Arenas lists the arenas of all receivers whose folders lie in dir. It writes to none.
func Arenas(dir string) (*ArenaList, error) {
	l := &ArenaList{Dir: dir, Arenas: []ArenaRow{}}
	roots, err := receiverFolders(dir)
	if err != nil {
		return nil, cli.WithCode(cli.ExitInput, fmt.Errorf("list arenas: %w", err))
	}
	var files []inode
	for _, root := range roots {
		rows, err := receiverArenas(root)
		if err != nil {
			return nil, fmt.Errorf("list arenas of %s: %w", root, err)
		}
		l.Arenas = append(l.Arenas, rows...)
	}
	for i := range l.Arenas {
		id, err := inodeOf(l.Arenas[i].Path)
		if err != nil {
			return nil, fmt.Errorf("list arenas: %w", err)
		}
		files = append(files, id)
	}
	readers := mappers(files)
	for i := range l.Arenas {
		l.Arenas[i].judgeUse(readers[files[i]])
	}
	return l, nil
}

// receiverFolders finds the folders below dir that receivers keep arenas in. A dir that doesn't exist has none.
func receiverFolders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var roots []string
	for _, e := range entries {
		root := filepath.Join(dir, e.Name())
		if _, err := os.Stat(filepath.Join(root, "lock")); err == nil && e.IsDir() {
			roots = append(roots, root)
		}
	}
	return roots, nil
}

// slotsOf lists the slots of a receiver's folder by number, and names the one that serves, "" for none.
func slotsOf(root string) (slots []string, serving string, err error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, "", err
	}
	for _, e := range entries {
		if e.IsDir() && slotName.MatchString(e.Name()) {
			slots = append(slots, e.Name())
		}
	}
	number := func(slot string) int {
		n, _ := strconv.Atoi(strings.TrimPrefix(slot, "slot-")) // matched as digits
		return n
	}
	slices.SortFunc(slots, func(a, b string) int { return number(a) - number(b) })
	current, err := os.Stat(filepath.Join(root, "current"))
	if errors.Is(err, fs.ErrNotExist) {
		return slots, "", nil // as before the first flip
	}
	if err != nil {
		return nil, "", fmt.Errorf("find out which slot serves: %w", err)
	}
	for _, slot := range slots { // however the link is spelt
		if info, err := os.Stat(filepath.Join(root, slot)); err == nil && os.SameFile(info, current) {
			serving = slot
		}
	}
	return slots, serving, nil
}

func receiverArenas(root string) ([]ArenaRow, error) {
	slots, serving, err := slotsOf(root)
	if err != nil {
		return nil, err
	}
	owner := "gone"
	if locked(filepath.Join(root, "lock")) {
		owner = "alive"
	}
	var rows []ArenaRow
	for _, slot := range slots {
		entries, err := os.ReadDir(filepath.Join(root, slot))
		if errors.Is(err, fs.ErrNotExist) {
			continue // its receiver has just replaced it
		}
		if err != nil {
			return nil, err
		}
		first := len(rows)
		for _, e := range entries {
			m := rankName.FindStringSubmatch(e.Name())
			info, err := e.Info()
			if m == nil || err != nil {
				continue
			}
			r := ArenaRow{Receiver: filepath.Base(root), Slot: slot, Path: filepath.Join(root, slot, e.Name()), Nbytes: info.Size(), Owner: owner, Readers: []string{}}
			r.Rank, _ = strconv.Atoi(m[1]) // matched as digits
			r.read(slot == serving)
			rows = append(rows, r)
		}
		oneVersion(rows[first:])
	}
	return rows, nil
}

// read takes the label out of the file's header, and judges it.
func (r *ArenaRow) read(serving bool) {
	f, err := safetensors.Open(r.Path)
	if err != nil {
		r.State, r.Problem = "invalid", err.Error()
		if !serving && wiped(r.Path) {
			r.State, r.Problem = "unsealed", ""
		}
		return
	}
	defer func() { _ = f.Close() }() // only read
	r.State = "sealed"
	if serving {
		r.State = "serving"
	}
	r.Model = f.Metadata[arena.MetaModel]
	run, version := f.Metadata[arena.MetaRun], f.Metadata[arena.MetaVersion]
	if r.Version = run + "." + version; run == "" || version == "" {
		r.Version, r.Problem = "", "its header names no version"
	}
	if rank := f.Metadata[arena.MetaRank]; rank != strconv.Itoa(r.Rank) {
		r.Problem = fmt.Sprintf("its header says that it is rank %q", rank)
	}
}

// wiped says whether a header's length is zero, as in a slot that is free or being staged into.
func wiped(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	var length [8]byte
	_, err = io.ReadFull(f, length[:])
	return err == nil && binary.LittleEndian.Uint64(length[:]) == 0
}

// oneVersion marks the labelled files of a slot that are not of one version. Those without a label are no contradiction:
// headers are written one after the other.
func oneVersion(rows []ArenaRow) {
	first := slices.IndexFunc(rows, func(r ArenaRow) bool { return r.Version != "" })
	for i := range rows {
		r, f := &rows[i], &rows[max(first, 0)]
		if r.Version != "" && (r.Version != f.Version || r.Model != f.Model) {
			r.Problem = fmt.Sprintf("holds %s of %q, rank %d of the same slot holds %s of %q", r.Version, r.Model, f.Rank, f.Version, f.Model)
		}
	}
}

// locked says whether a receiver holds its folder. A shared lock is tried for an instant: a receiver that starts in
// just that instant is refused, and has to be started again.
func locked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // gives the lock back
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// Verify reads all sealed files and compares them with what was noted when their bytes came. What was never noted, as by a
// receiver of an older make, is no problem.
func (l *ArenaList) Verify() {
	for i := range l.Arenas {
		r := &l.Arenas[i]
		if r.Problem != "" || r.State != "serving" && r.State != "sealed" {
			continue
		}
		nbytes, err := arena.Check(r.Path)
		if r.Verified = nbytes; err != nil && !errors.Is(err, arena.ErrNotNoted) && !errors.Is(err, fs.ErrNotExist) {
			r.Problem = err.Error()
		}
	}
}

// Problems counts the files that are not what they must be.
func (l *ArenaList) Problems() int {
	n := 0
	for i := range l.Arenas {
		if l.Arenas[i].Problem != "" {
			n++
		}
	}
	return n
}

// Write draws the list for people.
func (l *ArenaList) Write(w io.Writer) error {
	t := table{head: []string{"RECEIVER", "SLOT", "RANK", "SIZE", "STATE", "VERSION", "MODEL", "OWNER", "READ BY"}}
	for i := range l.Arenas {
		r := &l.Arenas[i]
		t.add(r.Receiver, r.Slot, fmt.Sprint(r.Rank), Size(r.Nbytes).String(), r.State, orNone(r.Version), orNone(r.Model), r.Owner, r.readersText())
	}
	if err := t.write(w, "no arenas in "+l.Dir+" (--arena-dir names the folder that receivers were given)"); err != nil {
		return err
	}
	for i := range l.Arenas {
		if r := &l.Arenas[i]; r.Problem != "" {
			fmt.Fprintf(w, "\n%s: %s\n", r.Path, printable(r.Problem))
		}
	}
	for _, s := range l.Removed {
		fmt.Fprintf(w, "\nremoved %s, %s\n", s.Path, Size(s.Nbytes))
	}
	return nil
}

func (r *ArenaRow) readersText() string {
	if r.InUse {
		return "somebody"
	}
	return names(r.Readers)
}

// RemoveOrphans removes the slots in dir that don't serve and whose receiver is gone. Processes that map one keep their
// bytes. A receiver that starts meanwhile is kept out by the folder's lock, and has to be started again.
func RemoveOrphans(dir string) ([]RemovedSlot, error) {
	roots, err := receiverFolders(dir)
	if err != nil {
		return nil, cli.WithCode(cli.ExitInput, fmt.Errorf("remove orphans: %w", err))
	}
	var removed []RemovedSlot
	for _, root := range roots {
		some, err := removeOrphans(root)
		removed = append(removed, some...)
		if err != nil {
			return removed, fmt.Errorf("remove orphans of %s: %w", root, err)
		}
	}
	return removed, nil
}

func removeOrphans(root string) ([]RemovedSlot, error) {
	lock, err := os.OpenFile(filepath.Join(root, "lock"), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }() // gives the lock back
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, nil // its receiver lives
	}
	slots, serving, err := slotsOf(root)
	if err != nil {
		return nil, err
	}
	var removed []RemovedSlot
	for _, slot := range slots {
		if slot == serving {
			continue
		}
		path := filepath.Join(root, slot)
		nbytes := allocated(path)
		if err := os.RemoveAll(path); err != nil {
			return removed, err
		}
		removed = append(removed, RemovedSlot{Path: path, Nbytes: nbytes})
	}
	return removed, nil
}

// allocated sums the files of a folder up, in bytes; what vanishes meanwhile counts nothing.
func allocated(dir string) int64 {
	var sum int64
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			sum += info.Size()
		}
	}
	return sum
}
