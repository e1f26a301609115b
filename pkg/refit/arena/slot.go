package arena

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/rdma"
)

// Slot is one set of arena files, one for each rank of the set, in the set's order.
type Slot struct {
	dir     string
	files   []*file
	mems    []*rdma.Memory
	ledgers []*ledger
	holds   Version // zero while it holds nothing valid
	state   state
}

type state uint8

const (
	stateFree     state = iota // may be written
	stateStaging               // handed out by Resume
	stateServing               // `current` leads here
	stateRetained              // served before; its readers may still be there
)

// Dir is the slot's folder.
func (s *Slot) Dir() string { return s.dir }

// Memory is the file of the i-th rank, mapped whole: offsets are those of the file.
func (s *Slot) Memory(i int) *rdma.Memory { return s.mems[i] }

// Path is the file of the i-th rank.
func (s *Slot) Path(i int) string { return filepath.Join(s.dir, fileName(s.files[i].rank.Rank)) }

// Holds says which version the slot holds; zero while it holds none.
func (s *Slot) Holds() Version { return s.holds }

func fileName(rank int) string { return fmt.Sprintf("rank-%d.safetensors", rank) }

// openLedgers makes the lists of blocks of a slot's files, and reads what an earlier life has left of them.
func (s *Slot) openLedgers() {
	for _, f := range s.files {
		l := newLedger(f, filepath.Join(s.dir, fmt.Sprintf("rank-%d.blocks", f.rank.Rank)))
		l.load()
		s.ledgers = append(s.ledgers, l)
	}
}

// makeSlot allocates a slot's files in dir, which it creates. On error nothing of it is left.
func makeSlot(dir string, files []*file, o rdma.AllocOptions) (*Slot, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make arena folder: %w", err)
	}
	s := &Slot{dir: dir, files: files}
	for i, f := range files {
		o.Backing, o.Path = rdma.File, s.Path(i)
		m, err := rdma.Alloc(f.nbytes, o)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make arena of rank %d: %w", f.rank.Rank, err), s.discard())
		}
		s.mems = append(s.mems, m)
	}
	s.openLedgers()
	return s, nil
}

// adoptSlot maps the files that an earlier life of the receiver left in dir, if they are of the same ranks and have the
// right sizes. A file of another rank would go on showing its old version when the others are written.
func adoptSlot(dir string, files []*file, huge bool) (*Slot, error) {
	s := &Slot{dir: dir, files: files}
	found, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return nil, fmt.Errorf("adopt arena: %w", err)
	}
	if len(found) != len(files) {
		return nil, fmt.Errorf("adopt arena %s: %d files, expected one for each of %d ranks", dir, len(found), len(files))
	}
	for i, f := range files {
		m, err := rdma.MapFile(s.Path(i), rdma.MapOptions{Writable: true, HugePages: huge})
		if err != nil {
			return nil, errors.Join(err, s.unmap())
		}
		s.mems = append(s.mems, m)
		if m.Len() != f.nbytes {
			err := fmt.Errorf("adopt arena %s: %d bytes, the layout needs %d", s.Path(i), m.Len(), f.nbytes)
			return nil, errors.Join(err, s.unmap())
		}
	}
	s.holds = s.label()
	s.openLedgers()
	return s, nil
}

// hugeBytes is how much of the slot stands on huge pages.
func (s *Slot) hugeBytes() (sum int64, err error) {
	for _, m := range s.mems {
		n, err := m.HugeBytes()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// label reads which version the files hold: one and the same in all, of this layout and this recipe, or none.
func (s *Slot) label() Version {
	var common Version
	for i, f := range s.files {
		v, ok := readLabel(s.Path(i), f)
		if !ok || i > 0 && v != common {
			return Version{}
		}
		common = v
	}
	return common
}

func readLabel(path string, f *file) (Version, bool) {
	t, err := safetensors.Open(path)
	if err != nil {
		return Version{}, false
	}
	defer func() { _ = t.Close() }()
	v := Version{Model: t.Metadata[MetaModel]}
	_, err = fmt.Sscan(t.Metadata[MetaRun]+" "+t.Metadata[MetaVersion], &v.Run, &v.Version)
	return v, err == nil && t.Metadata[MetaLayout] == f.digest && t.Metadata[MetaRecipe] == f.rank.Recipe
}

// wipe makes the files invalid: a header length of zero is no safetensors file.
func (s *Slot) wipe() {
	s.holds = Version{}
	for _, m := range s.mems {
		clear(m.Bytes()[:lengthBytes])
	}
}

// seal writes the headers, each length last. All of them are made first, so that an error leaves all files invalid.
func (s *Slot) seal(v Version) error {
	headers := make([][]byte, len(s.files))
	for i, f := range s.files {
		h, err := f.headerFor(v)
		if err != nil {
			return fmt.Errorf("seal arena of rank %d: %w", f.rank.Rank, err)
		}
		headers[i] = h
	}
	for i, h := range headers {
		b := s.mems[i].Bytes()
		copy(b[lengthBytes:], h[lengthBytes:])
		copy(b[:lengthBytes], h[:lengthBytes])
	}
	s.holds = v
	return nil
}

// inUse says whether any other process, or another open of this one, has a file of the slot open or mapped.
// The kernel grants a write lease only on a file that nobody else has. Where it grants none at all, a slot always counts as
// in use: each version then gets new files.
func (s *Slot) inUse() bool {
	for _, m := range s.mems {
		if !leasable(m.FD()) {
			return true
		}
	}
	return false
}

func leasable(fd int) bool {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return false // EAGAIN: somebody has it. Else the file system can't tell, and then nobody is known to be gone
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return err == nil
}

// unmap lets go of the memory and leaves the files.
func (s *Slot) unmap() error {
	var errs []error
	for _, l := range s.ledgers {
		errs = append(errs, l.close())
	}
	for _, m := range s.mems {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// unlink removes the files; whoever maps them keeps their bytes.
func (s *Slot) unlink() error {
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove arena: %w", err)
	}
	return nil
}

func (s *Slot) discard() error { return errors.Join(s.unmap(), s.unlink()) }
