package sidecar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"testing"

	"github.com/drydock-rl/drydock/internal/served"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// TestPlacesAreTheLayout lays random entries out, plain and in blocks, and holds places, layout and entries against each other
// element by element: each element of an entry has one place, no two share one, and the layout says the same as the places.
func TestPlacesAreTheLayout(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		req := randomRequest(r)
		for _, o := range []served.Options{{Parts: 1}, {MinBytes: 1}} {
			g, err := lay(0, &req, o, 1<<40)
			if err != nil {
				t.Fatal(err)
			}
			used := map[int64]string{}
			for i := range req.Entries {
				checkPlaces(t, &req.Entries[i], g.places[i], g.layout.Regions[0], used)
			}
			if n := countBlocks(g); n != len(g.layout.Source) {
				t.Fatalf("round %d: %d blocks, %d rows in the layout", round, n, len(g.layout.Source))
			}
			row, at := 0, 0
			for i, blocks := range g.places {
				for _, b := range blocks {
					if name := g.layout.Names[g.layout.Source[row]]; name != req.Entries[i].Name || g.layout.Offset[row] != b.Offset {
						t.Fatalf("row %d is of %s at %d, the block of %s at %d", row, name, g.layout.Offset[row], req.Entries[i].Name, b.Offset)
					}
					for d, x := range b.Box {
						if g.layout.Box[2*(at+d)] != x[0] || g.layout.Box[2*(at+d)+1] != x[1] {
							t.Fatalf("row %d: another box than the block %v", row, b.Box)
						}
					}
					row, at = row+1, at+len(b.Box)
				}
			}
		}
	}
}

func countBlocks(g *geometry) int {
	n := 0
	for _, b := range g.places {
		n += len(b)
	}
	return n
}

func randomRequest(r *rand.Rand) AttachRequest {
	req := AttachRequest{Model: "m", World: 1, Job: "j", Session: "s"}
	for i := range 1 + r.IntN(5) {
		e := Entry{Name: fmt.Sprint("t", i), DType: []string{"F32", "bfloat16", "uint8"}[r.IntN(3)], Shape: []int64{}, Box: [][2]int64{}}
		for range r.IntN(4) {
			n := int64(1 + r.IntN(40))
			lo := r.Int64N(n + 1)
			e.Shape, e.Box = append(e.Shape, n), append(e.Box, [2]int64{lo, lo + r.Int64N(n-lo+1)})
		}
		req.Entries = append(req.Entries, e)
	}
	return req
}

// checkPlaces walks the elements of each block.
func checkPlaces(t *testing.T, e *Entry, blocks []Block, nbytes int64, used map[int64]string) {
	t.Helper()
	size := map[string]int64{"F32": 4, "bfloat16": 2, "uint8": 1}[e.DType]
	seen := map[string]bool{}
	for _, b := range blocks {
		at := b.Offset
		walk(b.Box, func(index []int64) {
			key := fmt.Sprint(index)
			if seen[key] {
				t.Fatalf("element %s of %s lies twice", key, e.Name)
			}
			seen[key] = true
			for k := range size {
				if other, taken := used[at+k]; taken || at+k >= nbytes {
					t.Fatalf("byte %d of %d is %s's and %s's", at+k, nbytes, other, e.Name)
				}
				used[at+k] = e.Name
			}
			at += size
		})
	}
	n := 0
	walk(e.Box, func(index []int64) {
		n++
		if !seen[fmt.Sprint(index)] {
			t.Fatalf("element %v of %s lies nowhere", index, e.Name)
		}
	})
	if n != len(seen) {
		t.Fatalf("%d elements of %s lie somewhere, it has %d", len(seen), e.Name, n)
	}
}

// walk calls f for each element of a box, in row-major order.
func walk(box [][2]int64, f func([]int64)) {
	at := make([]int64, len(box))
	var dim func(int)
	dim = func(d int) {
		if d == len(box) {
			f(at)
			return
		}
		for at[d] = box[d][0]; at[d] < box[d][1]; at[d]++ {
			dim(d + 1)
		}
	}
	dim(0)
}

// TestAliasesLieWhereTheirTensorDoes publishes a tied weight under both names.
func TestAliasesLieWhereTheirTensorDoes(t *testing.T) {
	t.Parallel()
	req := request(0, 1, "s")
	req.Groups = []Group{{Kind: "alias", Members: []string{"up", "head"}}, {Kind: "alias", Members: []string{"elsewhere", "x"}}}
	for _, o := range []served.Options{{Parts: 1}, {MinBytes: 1}} {
		g, err := lay(0, &req, o, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		l := g.layout
		var up, head []int64
		for row, s := range l.Source {
			switch l.Names[s] {
			case "up":
				up = append(up, l.Offset[row])
			case "head":
				head = append(head, l.Offset[row])
			}
		}
		if len(up) == 0 || fmt.Sprint(up) != fmt.Sprint(head) || len(l.Names) != 3 {
			t.Errorf("up lies at %v, its alias at %v, of %v", up, head, l.Names)
		}
		if _, n := g.rows(); n == 0 || l.Grid == nil {
			t.Error("there are no tiles")
		}
	}
}

// FuzzAttach reads anything as a request, and lays out what can be: no request may take the sidecar down, and whatever is
// laid out passes the checks of the wire format and lies within its region.
func FuzzAttach(f *testing.F) {
	for _, req := range []AttachRequest{request(0, 2, "s"), external("s", true)} {
		b, err := json.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"model":"m","world":1,"job":"j","session":"s","entries":[{"name":"a","dtype":"U8","shape":[-1],"box":[[0,0]]}]}`))
	f.Add([]byte(`{"model":"m","world":1,"job":"j","session":"s","entries":[{"name":"a","dtype":"U8","shape":[9223372036854775807,3],"box":[[0,9223372036854775807],[0,3]]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var req AttachRequest
		r := httptest.NewRequest("PUT", "/", bytes.NewReader(b))
		if decode(httptest.NewRecorder(), r, &req) != nil || req.check(0) != nil {
			return
		}
		if g, err := lay(0, &req, served.Options{MinBytes: 1}, 1<<20); err == nil {
			if _, err := messages.EncodeLayout(g.layout); err != nil || len(g.places) != len(req.Entries) {
				t.Errorf("%d places for %d entries, %v", len(g.places), len(req.Entries), err)
			}
		}
		if req.Endpoint.check() == nil {
			if g, err := describe(0, &req, nil); err == nil {
				if _, err := messages.EncodeLayout(g.layout); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
