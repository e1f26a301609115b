package sidecar

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/refit"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// TestTrainersPublishAndAReceiverTakes has two ranks publish through one sidecar, and compares what a receiver serves.
func TestTrainersPublishAndAReceiverTakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ranks := []*trainer{w.attach(0, 2, "a"), w.attach(1, 2, "b")}
	arenas := filepath.Join(t.TempDir(), "arenas")
	reader := w.net.New("reader")
	defer reader.Close()
	receiver, err := refit.NewReceiver(refit.ReceiverConfig{
		Name: "r", Model: "m", Control: w.control, ArenaRoot: arenas, Transports: []rdma.Transport{reader},
		Dests: []plan.Dest{{
			Params: []plan.Param{{Name: "up", DType: plan.BF16, Shape: []int64{64, 48}}, {Name: "norm", DType: plan.F32, Shape: []int64{37}}},
			Copies: []plan.Copy{
				{Source: "up", Param: 0, Shape: []int64{64, 48}, Stride: []int64{48, 1}},
				{Source: "norm", Param: 1, Shape: []int64{37}, Stride: []int64{1}},
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	for v := uint64(1); v <= 3; v++ {
		var wg sync.WaitGroup
		for _, tr := range ranks {
			wg.Go(func() { tr.publish(v) })
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
		staged, err := receiver.Stage(w.ctx, w.committed(v))
		if err == nil {
			err = receiver.Apply(w.ctx, staged)
		}
		if err != nil {
			t.Fatal(err)
		}
		if s := staged.Stats(); s.Verified == 0 {
			t.Error("nothing was verified: the sidecar makes no digests")
		}
		compare(t, arenas, ranks, int(v)%2)
	}
	var served ServedAnswer
	w.asks("POST", path(0, "served"), ServedRequest{Version: 3, Receivers: 0}, &served)
}

// compare holds what is served against what the trainers wrote.
func compare(t *testing.T, arenas string, ranks []*trainer, slot int) {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(arenas, "current", "rank-0.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := map[string][]byte{}
	for _, tr := range ranks {
		at := tr.answer.Places[0][0].Offset
		want["up"] = append(want["up"], tr.slots[slot][at:at+32*48*2]...)
	}
	at := ranks[0].answer.Places[1][0].Offset
	want["norm"] = ranks[0].slots[slot][at : at+37*4]
	for _, tensor := range f.Tensors {
		if !bytes.Equal(f.Bytes(tensor), want[tensor.Name]) {
			t.Errorf("%s is not what the trainers wrote", tensor.Name)
		}
	}
}

// TestPublishIsIdempotent repeats each request.
func TestPublishIsIdempotent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tr := w.attach(0, 1, "a")
	first, again := tr.begin(7), tr.begin(7)
	if first.State != Filling || again.Slot != first.Slot {
		t.Fatalf("%+v, and again %+v", first, again)
	}
	tr.fill(first.Slot, 7)
	for range 3 {
		var out VersionAnswer
		w.asks("POST", path(0, "publish"), tr.request(7, first.Slot), &out)
		if out.State != Committed || out.Run != 1 {
			t.Fatalf("%+v", out)
		}
	}
	if a := tr.begin(7); a.State != Committed {
		t.Errorf("a committed version may be written again: %+v", a)
	}
	for range 2 {
		var out VersionAnswer
		w.asks("POST", path(0, "drain"), tr.request(7, 0), &out)
		if out.State != Drained {
			t.Errorf("%+v", out)
		}
	}
	if code := w.ask("POST", path(0, "begin"), tr.request(7, 0), nil); code != VersionEnded {
		t.Errorf("a withdrawn version was begun again: %q", code)
	}
}

// TestASlotIsGivenWhenNobodyReadsIt leases version 1 and asks for its slot.
func TestASlotIsGivenWhenNobodyReadsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tr := w.attach(0, 1, "a")
	tr.publish(1)
	lease, err := w.control.AcquireLease(w.ctx, w.committed(1), "slow")
	if err != nil {
		t.Fatal(err)
	}
	tr.publish(2)
	r := tr.request(3, 0)
	r.WaitMS = 100
	var waiting VersionAnswer
	w.asks("POST", path(0, "begin"), r, &waiting)
	if waiting.State != Waiting || len(waiting.Slots) != 2 || len(waiting.Slots[1].Holders) != 1 || waiting.Slots[1].Holders[0] != "slow" || waiting.Slots[1].Version != 1 {
		t.Fatalf("version 1 is read, version 3 is told: %+v", waiting)
	}
	if err := lease.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	if a := tr.begin(3); a.State != Filling || a.Slot != 1 {
		t.Errorf("%+v", a)
	}
}

// TestRefusals goes through what a client may do wrong.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if code := w.ask("POST", path(0, "begin"), VersionRequest{}, nil); code != NoArena {
		t.Errorf("without an arena: %q", code)
	}
	good := request(0, 2, "a")
	with := func(change func(*AttachRequest)) AttachRequest {
		r := good
		r.Entries = append([]Entry(nil), good.Entries...)
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		body any
		code Code
	}{
		"other model": {with(func(r *AttachRequest) { r.Model = "n" }), WrongModel},
		"no world":    {with(func(r *AttachRequest) { r.World = 0 }), BadRequest},
		"no job":      {with(func(r *AttachRequest) { r.Job = "" }), BadRequest},
		"no session":  {with(func(r *AttachRequest) { r.Session = "" }), BadRequest},
		"outside":     {with(func(r *AttachRequest) { r.Entries[0].Box = [][2]int64{{0, 65}, {0, 48}} }), BadRequest},
		"too few":     {with(func(r *AttachRequest) { r.Entries[0].Box = [][2]int64{{0, 65}} }), BadRequest},
		"half a byte": {with(func(r *AttachRequest) { r.Entries[0].DType = "F4" }), BadRequest},
		"no type":     {with(func(r *AttachRequest) { r.Entries[0].DType = "int3" }), BadRequest},
		"differs":     {with(func(r *AttachRequest) { r.Entries[1].Name = "up" }), BadRequest},
		"group":       {with(func(r *AttachRequest) { r.Groups = []Group{{Kind: "x"}} }), BadRequest},
		"small group": {with(func(r *AttachRequest) { r.Groups = []Group{{Kind: "atomic", Members: []string{"up"}}} }), BadRequest},
		"huge": {with(func(r *AttachRequest) {
			r.Entries[0].Shape, r.Entries[0].Box = []int64{1 << 47, 48}, [][2]int64{{0, 1 << 47}, {0, 48}}
		}), LimitExceeded},
		"no memory": {with(func(r *AttachRequest) {
			r.Entries[0].Shape, r.Entries[0].Box = []int64{1 << 40, 2}, [][2]int64{{0, 1 << 40}, {0, 2}}
		}), NoMemory},
		"unknown field":  {`{"model": "m", "wrld": 1}`, BadRequest},
		"not JSON":       {`{`, BadRequest},
		"more than JSON": {`{} {}`, BadRequest},
	} {
		if code := w.ask("PUT", path(0, ""), c.body, nil); code != c.code {
			t.Errorf("%s: code %q, expected %q", name, code, c.code)
		}
	}
	if code := w.ask("GET", "/v2/status", "", nil); code != Unsupported {
		t.Errorf("another version of the API: %q", code)
	}
	if code := w.ask("PUT", path(5, ""), good, nil); code != BadRequest {
		t.Errorf("rank 5 of 2: %q", code)
	}
	if left, err := filepath.Glob(filepath.Join(w.root, "*", "slot-*")); len(left) > 0 || err != nil {
		t.Errorf("refused requests left files: %v, %v", left, err)
	}
}

// TestWrongOrder asks for things of versions and slots that aren't so.
func TestWrongOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tr := w.attach(0, 1, "a")
	a := tr.begin(1)
	for name, c := range map[string]struct {
		r    VersionRequest
		code Code
	}{
		"other slot":     {tr.request(1, 1-a.Slot), WrongSlot},
		"no such slot":   {tr.request(2, 2), WrongSlot},
		"old generation": {func() VersionRequest { r := tr.request(1, a.Slot); r.Generation--; return r }(), StaleGeneration},
		"other session":  {func() VersionRequest { r := tr.request(1, a.Slot); r.Session = "z"; return r }(), Superseded},
		"trace":          {func() VersionRequest { r := tr.request(1, a.Slot); r.Traceparent = "00-1"; return r }(), BadRequest},
		"digests":        {func() VersionRequest { r := tr.request(1, a.Slot); r.Digests = []byte{1}; return r }(), BadRequest},
	} {
		if code := w.ask("POST", path(0, "publish"), c.r, nil); code != c.code {
			t.Errorf("%s: code %q, expected %q", name, code, c.code)
		}
	}
	tr.publish(1)
	if code := w.ask("POST", path(0, "publish"), func() VersionRequest { r := tr.request(1, a.Slot); r.Run = 9; return r }(), nil); code != Fenced {
		t.Errorf("another run: %q", code)
	}
	if code := w.ask("POST", path(0, "await"), tr.request(99, 0), nil); code != NotBegun {
		t.Errorf("a version that nobody knows: %q", code)
	}
}

// TestSecondLifeOfTheSidecarAdopts stops and starts the sidecar while a trainer keeps its mapping and has filled a slot.
func TestSecondLifeOfTheSidecarAdopts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tr := w.attach(0, 1, "a")
	tr.publish(1)
	a := tr.begin(2)
	tr.fill(a.Slot, 2)
	w.stop()
	if _, found, err := w.control.Newest(w.ctx); found || err != nil {
		t.Errorf("a version stands that nobody serves (error %v)", err)
	}
	w.start()
	if code := w.ask("POST", path(0, "publish"), tr.request(2, a.Slot), nil); code != NoArena {
		t.Fatalf("code %q", code)
	}
	second := w.attach(0, 1, "a")
	if !second.answer.Adopted || second.answer.Generation != tr.answer.Generation {
		t.Fatalf("not adopted: %+v", second.answer)
	}
	var out VersionAnswer
	w.asks("POST", path(0, "publish"), tr.request(2, a.Slot), &out) // the trainer's old mapping has the bytes
	if out.State != Committed || !bytes.Equal(second.slots[a.Slot], tr.slots[a.Slot]) || second.slots[a.Slot][0] != byte(2*31) {
		t.Errorf("%+v; the slot begins with %d", out, second.slots[a.Slot][0])
	}
	w.committed(2)
}

// TestARepeatedVersionOfAnEarlierLifeIsEnded has a sidecar die after it has published, and be asked for the same again.
func TestARepeatedVersionOfAnEarlierLifeIsEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tr := w.attach(0, 1, "a")
	out := tr.publish(1)
	w.stop()
	w.start()
	w.attach(0, 1, "a")
	if code := w.ask("POST", path(0, "publish"), tr.request(1, out.Slot), nil); code != VersionEnded {
		t.Errorf("code %q", code)
	}
	tr.publish(2)
	w.committed(2)
}

// TestNewLaunchGetsNewFiles attaches with another layout, and with another job.
func TestNewLaunchGetsNewFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	first := w.attach(0, 1, "a")
	first.publish(1)
	r := request(0, 1, "b")
	r.Entries = r.Entries[:1]
	second := w.attachAs(0, r)
	if second.answer.Adopted || second.answer.Generation <= first.answer.Generation {
		t.Errorf("another layout: %+v", second.answer)
	}
	r.Job, r.Session = "next", "c"
	third := w.attachAs(0, r)
	if third.answer.Adopted || third.answer.Generation <= second.answer.Generation {
		t.Errorf("another job: %+v", third.answer)
	}
	if out := third.publish(1); out.Run != 2 {
		t.Errorf("%+v", out)
	}
	if code := w.ask("POST", path(0, "begin"), first.request(5, 0), nil); code != Superseded {
		t.Errorf("the first client goes on: %q", code)
	}
}

// TestAnEarlierLifeOfTheTrainerHasTheNumber begins again with versions that were published.
func TestAnEarlierLifeOfTheTrainerHasTheNumber(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	first := w.attach(0, 1, "a")
	first.publish(1)
	first.begin(2)
	second := w.attach(0, 1, "b")
	if !second.answer.Adopted {
		t.Errorf("%+v", second.answer)
	}
	if code := w.ask("POST", path(0, "begin"), second.request(1, 0), nil); code != VersionTaken {
		t.Errorf("code %q", code)
	}
	second.publish(2) // never published by the first
	w.committed(2)
}

// TestATrainerThatDiedWaitingLeavesTheNumber: nothing of its version was written, so its next life begins with it.
func TestATrainerThatDiedWaitingLeavesTheNumber(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	first := w.attach(0, 1, "a")
	first.publish(1)
	lease, err := w.control.AcquireLease(w.ctx, w.committed(1), "slow")
	if err != nil {
		t.Fatal(err)
	}
	first.publish(2)
	r := first.request(3, 0)
	r.WaitMS = 0
	var waiting VersionAnswer
	if w.asks("POST", path(0, "begin"), r, &waiting); waiting.State != Waiting {
		t.Fatalf("%+v", waiting)
	}
	second := w.attach(0, 1, "b")
	if err := lease.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	if code := w.ask("POST", path(0, "begin"), r, nil); code != Superseded {
		t.Errorf("the first life goes on: %q", code)
	}
	second.publish(3)
	w.committed(3)
}

// TestDetachRemoves ends an arena at the client's wish.
func TestDetachRemoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tr := w.attach(0, 1, "a")
	tr.publish(1)
	lease, err := w.control.AcquireLease(w.ctx, w.committed(1), "slow")
	if err != nil {
		t.Fatal(err)
	}
	r := tr.request(0, 0)
	r.WaitMS = 100
	if code := w.ask("POST", path(0, "detach"), r, nil); code != Held {
		t.Errorf("an arena that is read was removed: %q", code)
	}
	if _, err := os.Stat(tr.answer.Slots[0]); err != nil {
		t.Error(err)
	}
	if err := lease.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	var done map[string]bool
	w.asks("POST", path(0, "detach"), tr.request(0, 0), &done)
	if _, err := os.Stat(filepath.Dir(tr.answer.Slots[0])); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
	if _, found, err := w.control.Newest(w.ctx); found || err != nil {
		t.Errorf("a version stands that nobody serves (error %v)", err)
	}
	var s Status
	w.asks("GET", "/v1/status", "", &s)
	if s.API != APIVersion || len(s.Arenas) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestStatusTellsWhoHoldsWhat looks at a rank.
func TestStatusTellsWhoHoldsWhat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tr := w.attach(0, 1, "a")
	tr.publish(4)
	var s ArenaStatus
	w.asks("GET", path(0, ""), "", &s)
	if s.Run != 1 || s.Trainer.PID != os.Getpid() || s.Trainer.Alive == nil || !*s.Trainer.Alive || len(s.Versions) != 1 || s.Versions[0].State != Committed || len(s.Slots) != 2 {
		t.Errorf("%+v", s)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]time.Duration{-1: 0, 0: 0, 5: 5 * time.Millisecond, 1 << 62: MaxWait} {
		if got := (&VersionRequest{WaitMS: ms}).wait(); got != want {
			t.Errorf("%d ms: waits %v, want %v", ms, got, want)
		}
	}
	r := AttachRequest{World: 1, Job: "j", Session: "s", Entries: make([]Entry, MaxEntries+1)}
	if e := coded(r.check(0)); e == nil || e.Code != LimitExceeded {
		t.Errorf("%v", e)
	}
}
