package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
)

// An arena on disk is a folder of shared memory:
//
//	<root>/<model>-<rank>/lock            held by the sidecar that serves it
//	<root>/<model>-<rank>/arena.json      what the files are; written last, so half-made files are never adopted
//	<root>/<model>-<rank>/slot-<generation>-<n>
//
// Files are never written anew in place: another layout, or another launch, gets files of its own under a new generation.

// identity is what must be equal for files to be adopted: another job's readers may still hold the old ones.
type identity struct {
	Schema string `json:"schema"`
	Model  string `json:"model"`
	Rank   int    `json:"rank"`
	World  int    `json:"world"`
	Job    string `json:"job"`
	Layout string `json:"layout"` // digest
	Nbytes int64  `json:"nbytes"` // of a slot
	Slots  int    `json:"slots"`
}

const arenaSchema = "drydock.publish-arena.v1"

// record is arena.json.
type arenaFile struct {
	identity
	Generation int64 `json:"generation"`
}

// maxArenaFile bounds arena.json in bytes; ours have some 400.
const maxArenaFile = 64 << 10

// files is an arena's memory, mapped and locked.
type files struct {
	dir        string
	lock       *os.File
	generation int64
	adopted    bool
	slots      []*rdma.Memory
}

// folder is where a rank's arena lies.
func folder(root, model string, rank int) string {
	return filepath.Join(root, messages.Token(model)+"-"+strconv.Itoa(rank))
}

// openFiles adopts the files of id, or makes them.
func openFiles(root string, id identity, now time.Time) (*files, error) {
	id.Schema = arenaSchema
	f := &files{dir: folder(root, id.Model, id.Rank)}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make arena folder: %w", err)
	}
	var err error
	if f.lock, err = lockFile(filepath.Join(f.dir, "lock")); err != nil {
		e := refuse(ArenaBusy, "another sidecar serves %s: %v", f.dir, err)
		e.Retry = true // it may be about to end
		return nil, e
	}
	before, err := readArenaFile(f.dir)
	if err == nil && before.identity == id && f.adopt(before) {
		return f, nil
	}
	// Larger than any before, also where the folder was removed meanwhile: a trainer may still have mapped what was in it.
	f.generation = max(before.Generation+1, now.UnixMilli())
	if err := f.create(id); err != nil {
		return nil, errors.Join(err, f.close(true))
	}
	return f, nil
}

// lockFile takes a lock that ends with the process.
func lockFile(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), lock.Close())
	}
	return lock, nil
}

func readArenaFile(dir string) (a arenaFile, err error) {
	r, err := os.Open(filepath.Join(dir, "arena.json"))
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	err = json.NewDecoder(io.LimitReader(r, maxArenaFile)).Decode(&a)
	return a, err
}

// adopt maps files that an earlier life of the sidecar made. Files that lack something are not adopted.
func (f *files) adopt(a arenaFile) bool {
	for i := range a.Slots {
		m, err := rdma.MapFile(slotPath(f.dir, a.Generation, i), rdma.MapOptions{Writable: true})
		if err == nil {
			f.slots = append(f.slots, m)
		}
		if err != nil || m.Len() != a.Nbytes {
			_ = f.unmap()
			return false
		}
	}
	f.generation, f.adopted = a.Generation, true
	return true
}

func slotPath(dir string, generation int64, i int) string {
	return filepath.Join(dir, fmt.Sprintf("slot-%d-%d", generation, i))
}

// create makes new files and removes older ones, whose readers keep what they have mapped.
func (f *files) create(id identity) error {
	if err := f.removeSlots(); err != nil {
		return err
	}
	for i := range id.Slots {
		m, err := rdma.Alloc(id.Nbytes, rdma.AllocOptions{Backing: rdma.File, Path: slotPath(f.dir, f.generation, i)})
		if err != nil {
			return fmt.Errorf("make slot %d of %d: %w", i, id.Slots, err)
		}
		f.slots = append(f.slots, m)
	}
	b, err := json.Marshal(arenaFile{identity: id, Generation: f.generation})
	if err != nil {
		return fmt.Errorf("describe arena: %w", err)
	}
	fresh := filepath.Join(f.dir, "arena.json.new")
	if err := os.WriteFile(fresh, b, 0o600); err != nil {
		return fmt.Errorf("describe arena: %w", err)
	}
	return os.Rename(fresh, filepath.Join(f.dir, "arena.json"))
}

func (f *files) removeSlots() error {
	old, err := filepath.Glob(filepath.Join(f.dir, "slot-*"))
	for _, path := range old {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func (f *files) paths() []string {
	out := make([]string, len(f.slots))
	for i, m := range f.slots {
		out[i] = m.Path()
	}
	return out
}

func (f *files) unmap() error {
	var errs []error
	for _, m := range f.slots {
		errs = append(errs, m.Close())
	}
	f.slots = nil
	return errors.Join(errs...)
}

// close unmaps and lets go of the lock; with remove nothing is left on disk. It may be repeated.
func (f *files) close(remove bool) error {
	err := f.unmap()
	if remove && f.lock != nil {
		err = errors.Join(err, os.RemoveAll(f.dir))
	}
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
		f.lock = nil
	}
	return err
}

// removeLeft removes a folder that nobody serves. One that another sidecar serves is left alone.
func removeLeft(dir string) error {
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return (&files{dir: dir, lock: lock}).close(true)
}

// left lists the arenas of a model that an earlier life has left on disk, by rank.
func left(root, model string) (map[int]string, error) {
	prefix := messages.Token(model) + "-"
	found, err := filepath.Glob(filepath.Join(root, prefix+"*", "arena.json"))
	if err != nil {
		return nil, fmt.Errorf("look for arenas: %w", err)
	}
	out := map[int]string{}
	for _, path := range found {
		dir := filepath.Dir(path)
		rank, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), prefix))
		if a, err2 := readArenaFile(dir); err == nil && err2 == nil && a.Model == model && a.Rank == rank {
			out[rank] = dir
		}
	}
	return out, nil
}
