package rdmabench

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/landing"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
)

var flips = flag.Int("flips", 200, "how many bits TestFlippedBitsAreFound flips, over all transports together")

// The tensor of the test, in elements of two bytes, as one shard.
const (
	flipRows, flipCols, elsize = 512, 384, 2
	flipBytes                  = flipRows * flipCols * elsize
)

// flipRig reads through one transport twice: by way of an injected fault, and from a replica without.
type flipRig struct {
	src, arena   *rdma.Memory
	bad, replica rdma.Peer
	grid, box    []int64
	digests      []uint64
	at           int64 // the arena's byte that was hit last
}

func newFlipRig(t *testing.T, open func(listen string) (rdma.Transport, error), backing rdma.Backing) *flipRig {
	t.Helper()
	g := &flipRig{box: []int64{0, flipRows, 0, flipCols}, grid: tiles.ChooseGrid([]int64{flipRows, flipCols}, elsize, tiles.Options{})}
	g.src = rdmatest.AllocAs(t, flipBytes, 1, rdma.AllocOptions{Backing: backing})
	g.arena = rdmatest.Alloc(t, flipBytes, 2)
	table := tiles.Table{ElSize: []int64{elsize}, ShapeEnd: []uint32{2}, Grid: g.grid, Source: []uint32{0}, Offset: []int64{0}, Box: g.box}
	var err error
	if g.digests, err = table.DigestAll(g.src.Bytes()); err != nil {
		t.Fatal(err)
	}
	source, err := open("127.0.0.1:0")
	if err != nil && os.Getenv("DRYDOCK_REQUIRE_NIXL") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	reader, err := open("")
	if err != nil {
		t.Fatal(err)
	}
	reg := rdmatest.Register(t, source, g.src)
	rdmatest.Register(t, reader, g.arena)
	t.Cleanup(func() { _ = reader.Close(); _ = source.Close() })
	life, ok := source.(lives)
	if !ok {
		t.Fatalf("%T has no incarnation", source)
	}
	r := rdmatest.RemoteOf(t, rdmatest.Pair{Source: source, Incarnation: life.Incarnation()}, reg)
	faulty := rdmatest.Faulty(reader, rdmatest.Fault{
		Kind: rdmatest.Corrupt, Rank: -1, Seed: 3,
		Injected: func(_ int, _ rdma.Segment, at int64) { g.at = at },
	})
	g.bad, g.replica = rdmatest.Connect(t, faulty, r), rdmatest.Connect(t, reader, r)
	return g
}

// slice is a box of whole cells; as a segment it goes to its own place in the arena.
func (g *flipRig) slice(r *rand.Rand) (lo, hi []int64) {
	for d := range 2 {
		n := g.box[2*d+1] / g.grid[d]
		a := r.Int64N(n)
		b := a + 1 + r.Int64N(n-a)
		lo, hi = append(lo, a*g.grid[d]), append(hi, b*g.grid[d])
	}
	return lo, hi
}

func segment(lo, hi []int64) rdma.Segment {
	off := (lo[0]*flipCols + lo[1]) * elsize
	const row = flipCols * elsize
	return rdma.Segment{
		Src: off, Dst: off, Run: (hi[1] - lo[1]) * elsize, N: [3]int64{1, 1, hi[0] - lo[0]},
		SrcStride: [3]int64{0, 0, row}, DstStride: [3]int64{0, 0, row},
	}
}

// verify gives the boxes of the tiles in a slice that differ from their digests.
func (g *flipRig) verify(lo, hi []int64) (bad [][2][2]int64, err error) {
	err = tiles.Within(g.grid, g.box, lo, hi, func(i int, tlo, thi []int64) error {
		off := (tlo[0]*flipCols + tlo[1]) * elsize
		sum, err := tiles.Digest(g.arena.Bytes(), off, elsize, []int64{thi[0] - tlo[0], thi[1] - tlo[1]}, []int64{flipCols * elsize, elsize})
		if err == nil && sum != g.digests[i] {
			bad = append(bad, [2][2]int64{[2]int64(tlo), [2]int64(thi)})
		}
		return err
	})
	return bad, err
}

// land reads a slice and looks at each of its tiles as it lands, as a receiver does.
func (g *flipRig) land(lo, hi []int64) (bad [][2][2]int64, err error) {
	read := landing.New([]rdma.Segment{segment(lo, hi)})
	var mu sync.Mutex
	err = tiles.Within(g.grid, g.box, lo, hi, func(_ int, tlo, thi []int64) error {
		tlo, thi = slices.Clone(tlo), slices.Clone(thi)
		first, last := (tlo[0]*flipCols+tlo[1])*elsize, ((thi[0]-1)*flipCols+thi[1])*elsize
		read.When(first, last, func() error {
			found, err := g.verify(tlo, thi)
			mu.Lock()
			defer mu.Unlock()
			bad = append(bad, found...)
			return err
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	t, err := read.Post(g.bad, g.arena)
	if err == nil {
		err = rdmatest.Wait(t)
	}
	mu.Lock()
	defer mu.Unlock()
	return bad, err
}

// find reads a slice and gives its bad tiles: every other time as they land, else when all has come.
func (g *flipRig) find(r *rand.Rand, lo, hi []int64) (bad [][2][2]int64, err error) {
	if r.IntN(2) == 0 {
		return g.land(lo, hi)
	}
	if err := rdmatest.Read(g.bad, g.arena, []rdma.Segment{segment(lo, hi)}); err != nil {
		return nil, err
	}
	return g.verify(lo, hi)
}

// once flips a bit on the way, finds its tile, and mends it from the replica.
func (g *flipRig) once(r *rand.Rand) error {
	lo, hi := g.slice(r)
	s := segment(lo, hi)
	clear(g.arena.Bytes())
	bad, err := g.find(r, lo, hi)
	if err != nil || len(bad) != 1 {
		return fmt.Errorf("slice %v to %v, byte %d hit: bad tiles %v, %w", lo, hi, g.at, bad, err)
	}
	row, col := g.at/elsize/flipCols, g.at/elsize%flipCols
	tlo, thi := bad[0][0], bad[0][1]
	if row < tlo[0] || row >= thi[0] || col < tlo[1] || col >= thi[1] {
		return fmt.Errorf("element (%d, %d) hit, tile %v blamed", row, col, bad[0])
	}
	if err := rdmatest.Read(g.replica, g.arena, []rdma.Segment{segment(tlo[:], thi[:])}); err != nil {
		return err
	}
	want := make([]byte, flipBytes)
	rdmatest.Apply(want, [][]byte{g.src.Bytes()}, []rdma.Segment{s})
	if !bytes.Equal(want, g.arena.Bytes()) {
		return fmt.Errorf("slice %v to %v isn't whole after its tile was read again", lo, hi)
	}
	return nil
}

func TestFlippedBitsAreFoundLocatedAndMended(t *testing.T) {
	t.Parallel()
	found, _ := filepath.Glob("../../.cache/nixl/*/.nixl_cu1*.mesonpy.libs/libnixl_capi.so")
	lib := append(found, "absent")[0]
	b := &bench{o: &Options{Nixl: nixl.Config{Library: lib, Agents: 1}}}
	if err := b.o.validate(); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name    string
		backing rdma.Backing
	}{{local.Name, rdma.Memfd}, {"vmread", rdma.Anonymous}, {tcp.Name, rdma.Memfd}, {"tls", rdma.Memfd}, {nixl.Name, rdma.Memfd}}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g := newFlipRig(t, func(listen string) (rdma.Transport, error) { return b.open(c.name, listen != "") }, c.backing)
			r := rand.New(rand.NewPCG(uint64(i), 9))
			for range *flips / len(cases) {
				if err := g.once(r); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
