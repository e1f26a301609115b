package arena

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// currentName is the link that readers follow.
const currentName = "current"

// ErrNoSlot is returned by Resume while every slot is staged into or serves. Nothing has changed; release or flip one.
var ErrNoSlot = errors.New("every arena is in use")

// ErrOwned is returned by Open when another live process owns the folder. Nothing has changed.
var ErrOwned = errors.New("arena folder belongs to another process")

// ErrGone is returned for a slot that is not the set's: quarantined, or of a set that is closed. Nothing has changed.
var ErrGone = errors.New("arena is not in use")

// slotCount is how many sets of files a receiver keeps at least when no reader lingers: one serves, one is staged into.
const slotCount = 2

// Set is the arenas of one receiver. It is safe for concurrent use.
type Set struct {
	root  string
	files []*file
	huge  bool
	lazy  bool
	count int // slots that are kept
	log   *slog.Logger
	lock  *os.File

	mu     sync.Mutex
	slots  []*Slot
	held   []*Slot  // quarantined: mapped until the transfers into them have ended, if ever
	next   int      // number of the next slot's folder
	stale  []string // folders of another layout that serve until the first flip
	closed bool
}

// Open takes the folder over: what an earlier life left there is adopted where it fits, the rest is removed, and room
// for all slots is reserved now. Errors: ErrOwned; no room, with the bytes that are missing.
func Open(cfg Config) (*Set, error) {
	s, err := open(cfg)
	if err != nil {
		return nil, fmt.Errorf("open arenas in %s: %w", cfg.Root, err)
	}
	return s, nil
}

func open(cfg Config) (*Set, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Set{root: cfg.Root, huge: cfg.HugePages, lazy: cfg.lazy, count: cfg.Slots, log: cfg.Logger, next: 1}
	for _, r := range cfg.Ranks {
		f, err := newFile(r, cfg.BlockBytes)
		if err != nil {
			return nil, fmt.Errorf("lay out arena of rank %d: %w", r.Rank, err)
		}
		s.files = append(s.files, f)
	}
	if err := s.own(); err != nil {
		return nil, err
	}
	if err := errors.Join(s.adopt(), s.fill()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.tellHuge()
	return s, nil
}

// tellHuge says once what came of the wish for huge pages. That there are none is no fault: small ones serve as well.
func (s *Set) tellHuge() {
	if !s.huge {
		return
	}
	var huge, all int64
	for _, slot := range s.slots {
		n, err := slot.hugeBytes()
		if err != nil {
			s.log.Debug("huge pages can't be counted", "error", err)
			return
		}
		huge, all = huge+n, all+s.slotBytes()
	}
	text := "arenas stand on huge pages"
	if huge == 0 {
		text = "no huge pages for arenas here; small ones serve"
	}
	s.log.Debug(text, "dir", s.root, "bytes", huge, "of", all)
}

// own makes the folder and locks it against a second receiver. The lock ends with the process.
func (s *Set) own() error {
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(s.root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return fmt.Errorf("lock %s: %w (%w)", lock.Name(), ErrOwned, err)
	}
	s.lock = lock
	return nil
}

// adopt maps the slots that are there and fit, and removes the others. One that serves with another layout goes on
// serving until the first flip.
func (s *Set) adopt() error {
	current, _ := os.Stat(s.link()) // nil where it leads nowhere
	dirs, err := filepath.Glob(filepath.Join(s.root, "slot-*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(dir), "slot-%d", &n); err != nil {
			continue
		}
		s.next = max(s.next, n+1)
		found, err := os.Stat(dir)
		serves := err == nil && os.SameFile(found, current) // however the link is spelt
		slot, err := adoptSlot(dir, s.files, s.huge)
		if err == nil && serves && slot.holds.IsZero() {
			err = errors.New("it has the sizes of this layout, but not its label")
		}
		if err != nil || len(s.slots) >= s.count && !serves {
			if err := s.dropStale(slot, dir, serves, err); err != nil {
				return err
			}
			continue
		}
		slot.state = stateFree
		if serves {
			slot.state = stateServing
		}
		s.slots = append(s.slots, slot)
	}
	s.tellRetained()
	return nil
}

// tellRetained finds, among slots that an earlier life has left, what served before what serves now: it is sealed and
// older. Anything else is ahead of it: staged, or begun.
func (s *Set) tellRetained() {
	serving := s.serving()
	for _, slot := range s.slots {
		if serving != nil && slot != serving && slot.holds.before(serving.holds) {
			slot.state = stateRetained
		}
	}
}

func (s *Set) dropStale(slot *Slot, dir string, serves bool, reason error) error {
	s.log.Info("arena of an earlier life not adopted", "dir", dir, "serves", serves, "reason", reason)
	var err error
	if slot != nil {
		err = slot.unmap()
	}
	if serves {
		s.stale = append(s.stale, dir)
		return err
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// fill makes slots until there are as many as configured.
func (s *Set) fill() error {
	if missing := s.count - len(s.slots); missing > 0 {
		if err := s.checkRoom(int64(missing)); err != nil {
			return err
		}
	}
	for len(s.slots) < s.count {
		if _, err := s.grow(); err != nil {
			return err
		}
	}
	return nil
}

// checkRoom refuses early, with the whole sum, what the file system can't hold.
func (s *Set) checkRoom(missing int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.root, &st); err != nil {
		return fmt.Errorf("ask for room: %w", err)
	}
	need, free := missing*s.slotBytes(), int64(st.Bavail)*st.Bsize
	if need > free {
		return fmt.Errorf("no room: %d arenas of %d bytes need %d, %d are free, %d are missing "+
			"(free some, or point the arena folder to a larger file system): %w",
			missing, s.slotBytes(), need, free, need-free, unix.ENOSPC)
	}
	return nil
}

func (s *Set) slotBytes() int64 {
	var sum int64
	for _, f := range s.files {
		sum += f.nbytes
	}
	return sum
}

func (s *Set) grow() (*Slot, error) {
	slot, err := makeSlot(filepath.Join(s.root, fmt.Sprintf("slot-%d", s.next)), s.files, rdma.AllocOptions{HugePages: s.huge, Lazy: s.lazy})
	if err != nil {
		return nil, err
	}
	s.next++
	s.slots = append(s.slots, slot)
	return slot, nil
}

// Offsets gives where each tensor of the i-th rank begins, in bytes from the file's start, in the order of the
// configuration.
func (s *Set) Offsets(i int) []int64 { return s.files[i].offsets }

// Root is the receiver's folder.
func (s *Set) Root() string { return s.root }

func (s *Set) link() string { return filepath.Join(s.root, currentName) }

// Serving is the slot that `current` leads to, nil before the first flip.
func (s *Set) Serving() *Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving()
}

func (s *Set) serving() *Slot {
	for _, slot := range s.slots {
		if slot.state == stateServing {
			return slot
		}
	}
	return nil
}

// replace leaves slot i to its readers and makes another.
func (s *Set) replace(i int) (*Slot, error) {
	old := s.slots[i]
	s.log.Info("arena left to its readers", "dir", old.dir, "holds", old.holds.Version)
	s.slots = slices.Delete(s.slots, i, i+1)
	if err := old.discard(); err != nil {
		return nil, err
	}
	return s.grow()
}

// Seal makes the files of a staged slot valid, labelled with v. Errors: ErrGone.
func (s *Set) Seal(slot *Slot, v Version) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.slots, slot) {
		return fmt.Errorf("seal %s: %w", slot.dir, ErrGone)
	}
	return slot.seal(v)
}

// Release gives a slot back that won't be flipped to. Its bytes stay, and with them the version it was sealed for.
func (s *Set) Release(slot *Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot.state == stateStaging {
		slot.state = stateFree
	}
}

// Quarantine takes a slot out of use for good: a transfer that never ended may still write to it.
// Its memory stays mapped while that transfer holds it, and its files are unlinked.
func (s *Set) Quarantine(slot *Slot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.slots, slot); i >= 0 {
		s.slots = slices.Delete(s.slots, i, i+1)
		s.held = append(s.held, slot)
	}
	s.log.Error("arena quarantined: a transfer into it never ended", "dir", slot.dir, "quarantined", len(s.held))
	return slot.unlink()
}

// reap unmaps what was quarantined and is not written to any more, so that its room is free again.
func (s *Set) reap() {
	s.held = slices.DeleteFunc(s.held, func(slot *Slot) bool { return slot.unmap() == nil })
}

// Flip makes `current` lead to a sealed slot, atomically for all ranks, and returns the slot that served before, or nil.
// Errors: ErrGone; whatever the file system says, and then the old slot serves.
func (s *Set) Flip(slot *Slot) (*Slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !slices.Contains(s.slots, slot):
		return nil, fmt.Errorf("flip to %s: %w", slot.dir, ErrGone)
	case slot.holds.IsZero():
		return nil, fmt.Errorf("flip to %s: it is not sealed", slot.dir)
	}
	before := s.serving()
	if before == slot {
		return before, nil
	}
	if err := s.point(filepath.Base(slot.dir)); err != nil {
		return nil, err
	}
	slot.state = stateServing
	if before != nil {
		before.state = stateRetained
	}
	for _, dir := range s.stale {
		if err := os.RemoveAll(dir); err != nil {
			s.log.Warn("old arena not removed", "dir", dir, "error", err)
		}
	}
	s.stale = nil
	return before, nil
}

// point replaces the link by one with another target; rename does it in one step.
func (s *Set) point(target string) error {
	next := s.link() + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("flip to %s: %w", target, err)
	}
	if err := os.Symlink(target, next); err != nil {
		return fmt.Errorf("flip to %s: %w", target, err)
	}
	if err := os.Rename(next, s.link()); err != nil {
		return fmt.Errorf("flip to %s: %w", target, err)
	}
	return nil
}

// Names lists the slots' folders relative to the root, the serving one first, for status.
func (s *Set) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, slot := range s.slots {
		name := filepath.Base(slot.dir)
		if slot.state == stateServing {
			names = append([]string{name}, names...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

// Close unmaps everything that no transfer holds. It leaves the slot that serves, and one that a later life may go on with
// because bytes of a version were noted in it, as a crash would leave both; the others are removed. Idempotent.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.reap()
	var errs []error
	for _, slot := range s.slots {
		if slot.state == stateServing || slot.state != stateRetained && slot.begun() {
			errs = append(errs, slot.unmap())
		} else {
			errs = append(errs, slot.discard())
		}
	}
	s.slots = nil
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
		s.lock = nil
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close arenas in %s: %w", s.root, err)
	}
	return nil
}
