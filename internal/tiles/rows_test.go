package tiles

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/zeebo/xxh3"
)

// joined is the rows without gaps.
func joined(mem []byte, off, run, stride, n int64) (out []byte) {
	for i := range n {
		out = append(out, mem[off+i*stride:][:run]...)
	}
	return out
}

// widths are the instructions that this processor has.
func widths() []bool {
	if wideRows {
		return []bool{false, true}
	}
	return []bool{false}
}

func TestRowsAreHashedAsOnePiece(t *testing.T) {
	t.Parallel()
	if !rowsWork {
		t.Skip("this processor gathers rows")
	}
	r := rand.New(rand.NewPCG(11, 12))
	mem := make([]byte, 300<<10)
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	for _, run := range []int64{32, 64, 96, 128, 160, 192, 384, 992, 1024, 1056, 4096} {
		for range 100 {
			n := 1 + r.Int64N(80)
			stride := run + r.Int64N(200)
			off := r.Int64N(100)
			if room := int64(len(mem)) - off - run; (n-1)*stride > room {
				n = room/stride + 1
			}
			if !rowsFit(run, stride, n) {
				continue
			}
			// The memory ends with the last row, as it may in an arena: a byte beyond would panic.
			end := off + (n-1)*stride + run
			want := xxh3.Hash(joined(mem, off, run, stride, n))
			for _, wide := range widths() {
				if got := hashRowsBy(wide, mem[:end:end], off, run, stride, n); got != want {
					t.Fatalf("wide %t, %d rows of %d bytes, %d apart: %016x, want %016x", wide, n, run, stride, got, want)
				}
			}
		}
	}
}

// Lengths around the ends of stripes and blocks are where the rules of xxh3 change.
func TestRowsOfEveryLength(t *testing.T) {
	t.Parallel()
	if !rowsWork {
		t.Skip("this processor gathers rows")
	}
	mem := make([]byte, 64<<10)
	for i := range mem {
		mem[i] = byte(i * 37 >> 2)
	}
	for _, run := range []int64{32, 64} {
		for n := leastRows / run; n <= 200; n++ {
			want := xxh3.Hash(joined(mem, 5, run, run+8, n))
			for _, wide := range widths() {
				if got := hashRowsBy(wide, mem, 5, run, run+8, n); got != want {
					t.Fatalf("wide %t, %d rows of %d bytes: %016x, want %016x", wide, n, run, got, want)
				}
			}
		}
	}
}

func FuzzDigestOfRows(f *testing.F) {
	f.Add(uint16(96), uint16(1536), uint8(128), uint8(3))
	f.Add(uint16(32), uint16(32), uint8(8), uint8(0))
	mem := make([]byte, 1<<20)
	for i := range mem {
		mem[i] = byte(i * 2654435761 >> 11)
	}
	f.Fuzz(func(t *testing.T, run, stride uint16, n, off uint8) {
		rows, width := int64(n), int64(run)%2048
		step := max(width, int64(stride)%4096)
		if rows == 0 || width == 0 || int64(off)+(rows-1)*step+width > int64(len(mem)) {
			return
		}
		got, err := Digest(mem, int64(off), 1, []int64{rows, width}, []int64{step, 1})
		if want := xxh3.Hash(joined(mem, int64(off), width, step, rows)); err != nil || got != want {
			t.Fatalf("%d rows of %d bytes, %d apart, at %d: %016x, %v, want %016x", rows, width, step, off, got, err, want)
		}
	})
}

// The tile of a sixteenth of [2048, 768] in bf16, among its neighbours, in the second-level cache.
func BenchmarkDigestOfRows(b *testing.B) {
	mem := make([]byte, 128*1536)
	for _, run := range []int64{96, 192, 384} {
		each := func(name string, digest func(at int64)) {
			b.Run(fmt.Sprintf("%dB/%s", run, name), func(b *testing.B) {
				b.SetBytes(int64(len(mem)))
				b.ReportAllocs()
				for b.Loop() {
					for at := int64(0); at < 1536; at += run {
						digest(at)
					}
				}
			})
		}
		g := new(gatherer)
		each("gathered", func(at int64) {
			g.m = mover{dst: g.buf[:], src: mem, run: run}
			g.digest(at, []int64{128}, []int64{1536})
		})
		if rowsWork {
			for _, wide := range widths() {
				each(fmt.Sprintf("wide=%t", wide), func(at int64) { hashRowsBy(wide, mem, at, run, 1536, 128) })
			}
		}
	}
}
