package sidecar

import (
	"encoding/binary"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// external is a request for memory that another process has registered: two regions, of which one is on a device.
func external(session string, digests bool) AttachRequest {
	r := request(0, 1, session)
	r.Endpoint = &Endpoint{Agent: "agent", Metadata: []byte("md"), Regions: []Region{{Base: 4096, Nbytes: 8192}, {Base: 1 << 40, Nbytes: 1024, Device: "cuda:1"}}}
	r.Entries[0].Offset, r.Entries[0].Stride = 64, []int64{1, 64} // a transposed view
	r.Entries[1].Region = 1
	r.Digests = digests
	return r
}

func externalPath(verb string) string { return "/v1/external/0/" + verb }

// TestVersionsInPlace publishes memory that this process never sees, and looks at what receivers are told.
func TestVersionsInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var a AttachAnswer
	w.asks("PUT", "/v1/external/0", external("s", true), &a)
	if a.Tiles < 2 || len(a.Grids) != 2 || len(a.Slots) != 0 {
		t.Fatalf("%+v", a)
	}
	digests := make([]byte, 8*a.Tiles)
	for i := range a.Tiles {
		binary.LittleEndian.PutUint64(digests[8*i:], uint64(i)+7)
	}
	ask := func(version uint64, d []byte) VersionRequest {
		return VersionRequest{Session: "s", Generation: a.Generation, Version: version, Digests: d, WaitMS: patience.Milliseconds()}
	}
	var v VersionAnswer
	w.asks("POST", externalPath("begin"), ask(1, nil), &v)
	for name, d := range map[string][]byte{"none": nil, "some": digests[8:], "odd": digests[1:]} {
		if code := w.ask("POST", externalPath("publish"), ask(1, d), nil); code != DigestsPartial {
			t.Errorf("%s of the digests: %q", name, code)
		}
	}
	w.asks("POST", externalPath("publish"), ask(1, digests), &v)
	key := w.committed(1)
	version, err := w.control.Assemble(w.ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	rank := version.Ranks[0]
	if e := rank.Endpoint; len(e.Regions) != 2 || e.Regions[1].Device != "cuda:1" || e.Access[0].Transport != "nixl" || e.Access[0].Agent != "agent" {
		t.Errorf("%+v", e)
	}
	if rank.Tiles.Digests[3] != 10 || rank.Layout.Region[1] != 1 || rank.Layout.Offset[0] != 64 || rank.Layout.Stride[1] != 64 {
		t.Errorf("digest %d, regions %v, offsets %v, strides %v", rank.Tiles.Digests[3], rank.Layout.Region, rank.Layout.Offset, rank.Layout.Stride)
	}
	inPlaceWaits(t, w, key, ask)
}

// TestATableSaysWhichTensorsCarryDigests has a trainer digest one of its two tensors, which has a second name.
func TestATableSaysWhichTensorsCarryDigests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	all, req := external("s", true), external("s", true)
	req.Entries[0].Undigested = true
	req.Groups = []Group{{Kind: "alias", Members: []string{"norm", "scale"}}, {Kind: "alias", Members: []string{"up", "head"}}}
	both, err := describe(0, &all, &w.sidecar.cfg.Tiles)
	if err != nil {
		t.Fatal(err)
	}
	var a AttachAnswer
	w.asks("PUT", "/v1/external/0", req, &a)
	if a.Tiles != 1 || both.tiles() <= a.Tiles { // norm is one tile
		t.Fatalf("%d tiles of %d are to be digested", a.Tiles, both.tiles())
	}
	ask := VersionRequest{Session: "s", Generation: a.Generation, Version: 1, WaitMS: patience.Milliseconds()}
	var v VersionAnswer
	w.asks("POST", externalPath("begin"), ask, &v)
	ask.Digests = make([]byte, 8*both.tiles())
	if code := w.ask("POST", externalPath("publish"), ask, nil); code != DigestsPartial {
		t.Errorf("digests of what is not digested: %q", code)
	}
	ask.Digests = binary.LittleEndian.AppendUint64(nil, 77)
	w.asks("POST", externalPath("publish"), ask, &v)
	version, err := w.control.Assemble(w.ctx, w.committed(1))
	if err != nil {
		t.Fatal(err)
	}
	rank := version.Ranks[0]
	for source, name := range rank.Layout.Names {
		if carries := name == "norm" || name == "scale"; rank.Tiles.Carries(uint32(source)) != carries {
			t.Errorf("%s carries digests: %v", name, !carries)
		}
	}
	var made []uint64 // by the trainer, and again for the other name
	for _, d := range rank.Tiles.Digests {
		if d != 0 {
			made = append(made, d)
		}
	}
	if !slices.Equal(made, []uint64{77, 77}) {
		t.Errorf("digests %v of sources %q, bare are %v", rank.Tiles.Digests, rank.Layout.Names, rank.Tiles.Bare)
	}
}

// inPlaceWaits has the next version begin only when nobody reads the one that lies there.
func inPlaceWaits(t *testing.T, w *world, key messages.Key, ask func(uint64, []byte) VersionRequest) {
	t.Helper()
	lease, err := w.control.AcquireLease(w.ctx, key, "slow")
	if err != nil {
		t.Fatal(err)
	}
	r := ask(2, nil)
	r.WaitMS = 100
	var v VersionAnswer
	w.asks("POST", externalPath("begin"), r, &v)
	if v.State != Waiting || len(v.Slots) != 1 || len(v.Slots[0].Holders) != 1 {
		t.Errorf("the memory is read, and given out: %+v", v)
	}
	if err := lease.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.asks("POST", externalPath("begin"), ask(2, nil), &v)
	if v.State != Filling {
		t.Errorf("%+v", v)
	}
}

func TestExternalRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for name, change := range map[string]func(*AttachRequest){
		"no endpoint":         func(r *AttachRequest) { r.Endpoint = nil },
		"no metadata":         func(r *AttachRequest) { r.Endpoint.Metadata = nil },
		"no regions":          func(r *AttachRequest) { r.Endpoint.Regions = nil },
		"empty region":        func(r *AttachRequest) { r.Endpoint.Regions[0].Nbytes = 0 },
		"wraps around":        func(r *AttachRequest) { r.Endpoint.Regions[0].Base = ^uint64(0) },
		"no such region":      func(r *AttachRequest) { r.Entries[1].Region = 2 },
		"beyond":              func(r *AttachRequest) { r.Entries[0].Offset = 8000 },
		"stride":              func(r *AttachRequest) { r.Entries[0].Stride = []int64{1} },
		"nothing is digested": func(r *AttachRequest) { r.Entries[0].Undigested = true },
		"digested and not": func(r *AttachRequest) {
			r.Digests = true
			r.Entries = append(r.Entries, r.Entries[1])
			r.Entries[1].Undigested = true
		},
	} {
		r := external("s", false)
		change(&r)
		if code := w.ask("PUT", "/v1/external/0", r, nil); code != BadRequest {
			t.Errorf("%s: code %q", name, code)
		}
	}
}

// TestMemoryIsGoneWithItsProcess ends the process whose memory is read in place: no grace time makes sense.
func TestMemoryIsGoneWithItsProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	req := external("s", false)
	a, err := w.sidecar.attach(w.ctx, 0, child.Process.Pid, &req, true)
	if err != nil {
		t.Fatal(err)
	}
	r := VersionRequest{Session: "s", Generation: a.Generation, Version: 1, WaitMS: patience.Milliseconds()}
	var v VersionAnswer
	w.asks("POST", externalPath("begin"), r, &v)
	w.asks("POST", externalPath("publish"), r, &v)
	_ = child.Process.Kill()
	_ = child.Wait()
	for deadline := time.Now().Add(patience); ; {
		var s Status
		w.asks("GET", "/v1/status", "", &s)
		if len(s.Arenas) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the version of memory that is gone stays")
		}
	}
	if _, found, err := w.control.Newest(w.ctx); found || err != nil {
		t.Errorf("its version stands (error %v)", err)
	}
}
