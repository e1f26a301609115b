package arena

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

// A ledger is the list of digests beside an arena file: one for each block of its tensors' bytes, written when the last byte
// of the block has come. It is how a later life of the receiver knows what of a file is whole, in whatever moment its
// earlier life ended, and which version's it is.
//
// The file rank-<r>.blocks, all little-endian:
//
//	 0  8   "DDBLOCK1"
//	 8 32   label: SHA-256 of model, run, version, rank, the layout's digest, the recipe and the content
//	40  8   bytes of a block
//	48  8   number of blocks
//	56  8   0
//	64  8n  of each block: xxh3-64 of its bytes, seeded with the label's first 8 bytes; 0: the block isn't whole
//
// The seed makes digests of another version worthless, also where a power failure left them under a new label.
type ledger struct {
	f      *file
	path   string
	out    *os.File
	label  [sha256.Size]byte // zero: nothing is kept
	sums   []atomic.Uint64   // by block; 0: not whole
	expect []int32           // bytes of tensors in each block
	left   []atomic.Int32    // of them, bytes still to come
	early  []atomic.Uint64   // digests of blocks that landed and have not come yet: see Foresee; 0: none
}

// Content identifies the bytes of a version beyond its number, such as by the digests of what its ranks published.
type Content [sha256.Size]byte

const (
	ledgerMagic = "DDBLOCK1"
	ledgerHead  = 64
)

// blocks is how many blocks a file's tensors take.
func (f *file) blocks() int { return int((f.nbytes - f.header + f.perBlock - 1) / f.perBlock) }

// block is where block k lies, in bytes from the file's start.
func (f *file) block(k int) (lo, hi int64) {
	lo = f.header + int64(k)*f.perBlock
	return lo, min(lo+f.perBlock, f.nbytes)
}

// tensorBytes counts for each block how many bytes of tensors it has. What is between tensors is never written.
func (f *file) tensorBytes() []int32 {
	counts := make([]int32, f.blocks())
	for i, off := range f.offsets {
		f.eachBlock(off, off+f.sizes[i], func(k int, n int64) { counts[k] += int32(n) })
	}
	return counts
}

// eachBlock cuts [lo, hi) at the blocks' borders.
func (f *file) eachBlock(lo, hi int64, do func(k int, nbytes int64)) {
	for lo < hi {
		k := int((lo - f.header) / f.perBlock)
		_, end := f.block(k)
		end = min(end, hi)
		do(k, end-lo)
		lo = end
	}
}

func newLedger(f *file, path string) *ledger {
	n := f.blocks()
	return &ledger{
		f: f, path: path, expect: f.tensorBytes(),
		sums: make([]atomic.Uint64, n), left: make([]atomic.Int32, n), early: make([]atomic.Uint64, n),
	}
}

// labelOf names what a ledger is about.
func labelOf(f *file, v Version, c Content) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %d %d %d %s %q %x", v.Model, v.Run, v.Version, f.rank.Rank, f.digest, f.rank.Recipe, c))
}

func (l *ledger) seed() uint64 { return binary.LittleEndian.Uint64(l.label[:]) }

// sum is the digest of a block as it lies in memory.
func (l *ledger) sum(k int, mem []byte) uint64 {
	lo, hi := l.f.block(k)
	return max(1, xxh3.HashSeed(mem[lo:hi], l.seed()))
}

// load reads what an earlier life has left. A ledger that isn't there, or is damaged, keeps nothing.
func (l *ledger) load() {
	b, err := readList(l.path, ledgerHead+8*int64(len(l.sums)))
	if err != nil || len(b) != ledgerHead+8*len(l.sums) || !bytes.Equal(b[:ledgerHead], l.head(b[8:40])) {
		return
	}
	copy(l.label[:], b[8:40])
	for k := range l.sums {
		l.sums[k].Store(binary.LittleEndian.Uint64(b[ledgerHead+8*k:]))
	}
}

func (l *ledger) head(label []byte) []byte {
	h := make([]byte, ledgerHead)
	copy(h, ledgerMagic)
	copy(h[8:40], label)
	binary.LittleEndian.PutUint64(h[40:], uint64(l.f.perBlock))
	binary.LittleEndian.PutUint64(h[48:], uint64(len(l.sums)))
	return h
}

// begin opens the ledger for a version. What it keeps of the same version stays, all else goes before a byte is written.
func (l *ledger) begin(label [sha256.Size]byte) (err error) {
	if label != l.label {
		for k := range l.sums {
			l.sums[k].Store(0)
		}
	}
	l.label = label
	for k := range l.left {
		l.early[k].Store(0)
		l.left[k].Store(l.expect[k])
		if l.sums[k].Load() != 0 {
			l.left[k].Store(0)
		}
	}
	if l.out == nil {
		if l.out, err = os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return fmt.Errorf("begin the list of an arena's blocks: %w", err)
		}
	}
	b := l.head(label[:])
	for k := range l.sums {
		b = binary.LittleEndian.AppendUint64(b, l.sums[k].Load())
	}
	if _, err := l.out.WriteAt(b, 0); err != nil {
		return fmt.Errorf("begin the list of an arena's blocks: %w", err)
	}
	if err := l.out.Truncate(int64(len(b))); err != nil {
		return fmt.Errorf("begin the list of an arena's blocks: %w", err)
	}
	return nil
}

// came counts bytes of a block that have arrived, and notes its digest when they were the last ones. A digest that can't be
// written costs a later life a read, no more.
func (l *ledger) came(k int, nbytes int64, mem []byte) {
	if l.left[k].Add(-int32(nbytes)) != 0 {
		return
	}
	sum := l.early[k].Swap(0)
	if sum == 0 {
		sum = l.sum(k, mem)
	}
	l.sums[k].Store(sum)
	_, _ = l.out.WriteAt(binary.LittleEndian.AppendUint64(nil, sum), ledgerHead+8*int64(k))
}

// whole says whether block k is as the ledger's version has it, as far as is known.
func (l *ledger) whole(k int) bool { return l.expect[k] == 0 || l.sums[k].Load() != 0 }

// verify reads the blocks that are said to be whole, on some goroutines, and strikes out those that are not. It gives the
// bytes of tensors in good blocks, and the numbers of the bad ones. only, if not nil, says which blocks it is about.
func (l *ledger) verify(mem []byte, workers int, only []bool) (nbytes int64, bad []int) {
	var next, sum atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range min(workers, len(l.sums)) {
		wg.Go(func() {
			for k := int(next.Add(1)) - 1; k < len(l.sums); k = int(next.Add(1)) - 1 {
				switch noted := l.sums[k].Load(); {
				case noted == 0 || only != nil && !only[k]:
				case noted == l.sum(k, mem):
					sum.Add(int64(l.expect[k]))
				default:
					l.sums[k].Store(0)
					mu.Lock()
					bad = append(bad, k)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return sum.Load(), bad
}

func (l *ledger) close() error {
	if l.out == nil {
		return nil
	}
	err := l.out.Close()
	l.out = nil
	return err
}
