package messages_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *lifeFlag != "" {
		os.Exit(live(*lifeFlag)) // a child process of a test
	}
	goleak.VerifyTestMain(m)
}

const model = "org/tiny-moe.v2"

// memory is a model whose streams live in memory, for tests that restart nothing.
func memory() messages.Config {
	return messages.Config{Model: model, Memory: true, Poll: 200 * time.Millisecond, LeaseTTL: 2 * time.Second}
}

// publication makes rank's part of a version of a tiny model.
func publication(key messages.Key, rank, world int) messages.Publication {
	l := &messages.Layout{
		Rank: rank, Regions: []int64{4096},
		Names: []string{"embed.weight", "head.weight", "norm.bias"}, DTypes: []messages.DType{messages.BF16, messages.BF16, messages.F32},
		ShapeEnd: []uint32{2, 4, 5}, Shapes: []int64{int64(world), 8, int64(world), 8, 4},
		Grid:   []int64{1, 8, 1, 8, 4},
		Source: []uint32{0, 1}, Region: []uint32{0, 0}, Offset: []int64{0, 16},
		Box: []int64{int64(rank), int64(rank) + 1, 0, 8, int64(rank), int64(rank) + 1, 0, 8},
	}
	e := &messages.Endpoint{
		Rank: rank, Host: "host-a", Incarnation: fmt.Sprintf("life-1-of-%d", rank),
		Regions: []messages.EndpointRegion{{Base: 0x7f0000000000, Nbytes: 4096}},
		Access:  []messages.Access{{Transport: "tcp", Agent: fmt.Sprintf("127.0.0.1:%d", 7000+rank), Metadata: []byte{1, 2}}},
	}
	tiles := &messages.Tiles{Digests: []uint64{key.Version<<8 | uint64(rank), 2}}
	return messages.Publication{Key: key, Rank: rank, World: world, Layout: l, Endpoint: e, Tiles: tiles}
}

// publishAll publishes and commits a version with every rank on its own goroutine.
func publishAll(t testing.TB, c *messages.Control, key messages.Key, world int) *messages.Manifest {
	t.Helper()
	ctx := natstest.Context(t, 20*time.Second)
	manifests := make([]*messages.Manifest, world)
	var wg sync.WaitGroup
	for rank := range world {
		wg.Go(func() {
			if err := c.Publish(ctx, publication(key, rank, world)); err != nil {
				t.Error(err)
				return
			}
			var err error
			if manifests[rank], err = c.Commit(ctx, key, world); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return manifests[0]
}

func takeRun(t testing.TB, c *messages.Control, job string, world int) messages.RunRecord {
	t.Helper()
	run, err := c.TakeRun(natstest.Context(t, 10*time.Second), job, world)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func TestPublishCommitAssemble(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	run := takeRun(t, c, "job-a", 4)
	if again := takeRun(t, c, "job-a", 4); again.Run != run.Run || again.Nonce != run.Nonce {
		t.Errorf("the same job got %+v, then %+v", run, again)
	}
	watch, err := c.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for step := range uint64(3) {
		key := messages.Key{Run: run.Run, Version: step}
		man := publishAll(t, c, key, 4)
		a := <-watch
		if a.Key != key {
			t.Fatalf("announced %s, want %s", a.Key, key)
		}
		lease, err := c.AcquireLease(ctx, key, "receiver-0")
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.Assemble(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		if v.Run.Nonce != run.Nonce || len(v.Ranks) != 4 || v.Ranks[2].Tiles.Digests[0] != step<<8|2 {
			t.Errorf("version %s: %+v", key, v.Ranks[2])
		}
		if v.Ranks[3].Layout.Names[1] != "head.weight" || v.Ranks[1].Endpoint.Access[0].Agent != "127.0.0.1:7001" {
			t.Errorf("version %s: layout or endpoint differ", key)
		}
		if v.Manifest.Nbytes() != man.Nbytes() || man.Nbytes() != 4*32 {
			t.Errorf("version %s has %d bytes", key, man.Nbytes())
		}
		if err := lease.Confirm(ctx); err != nil {
			t.Error(err)
		}
		if err := errors.Join(lease.Release(ctx), lease.Release(ctx)); err != nil {
			t.Error(err)
		}
	}
	if bad, n := c.Quarantine(); n != 0 {
		t.Errorf("quarantined %v", bad)
	}
}

func TestRetireWaitsForLeases(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	key := messages.Key{Run: takeRun(t, c, "job", 2).Run, Version: 7}
	publishAll(t, c, key, 2)
	lease, err := c.AcquireLease(ctx, key, "slow")
	if err != nil {
		t.Fatal(err)
	}
	short := natstest.Context(t, 600*time.Millisecond)
	var held *messages.HeldError
	if err := c.Retire(short, key, 0); !errors.As(err, &held) || !slices.Equal(held.Receivers, []string{"slow"}) {
		t.Fatalf("retired a version that is read: %v", err)
	}
	if _, err := c.AcquireLease(ctx, key, "late"); !errors.Is(err, messages.ErrRetired) {
		t.Errorf("leased a withdrawn version: %v", err)
	}
	if err := lease.Confirm(ctx); !errors.Is(err, messages.ErrRetired) {
		t.Errorf("confirmed a withdrawn version: %v", err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	for rank := range 2 {
		if err := c.Retire(ctx, key, rank); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Commit(ctx, key, 2); !errors.Is(err, messages.ErrRetired) {
		t.Errorf("committed a retired version: %v", err)
	}
	if _, ok, err := c.Newest(ctx); ok || err != nil {
		t.Errorf("a retired version is the newest (%v)", err)
	}
}

func TestLeaseOfDeadReceiverExpires(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, s, memory())
	key := messages.Key{Run: takeRun(t, c, "job", 1).Run, Version: 1}
	publishAll(t, c, key, 1)
	dead := natstest.Open(t, s, memory())
	lease, err := dead.AcquireLease(natstest.Context(t, 5*time.Second), key, "dead")
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil { // ends the renewal, releases nothing
		t.Fatal(err)
	}
	<-lease.Lost()
	if lease.Valid() {
		t.Error("a lease that nobody renews is valid")
	}
	began := time.Now()
	if err := c.Retire(natstest.Context(t, 10*time.Second), key, 0); err != nil {
		t.Fatal(err)
	}
	t.Logf("drained after %v of a TTL of 2 s", time.Since(began))
}

func TestFencedRunCannotCommit(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	old := takeRun(t, c, "first", 1)
	key := messages.Key{Run: old.Run, Version: 1}
	publishAll(t, c, key, 1)
	lease, err := c.AcquireLease(ctx, key, "r")
	if err != nil {
		t.Fatal(err)
	}
	if newer := takeRun(t, c, "second", 1); newer.Run != old.Run+1 {
		t.Fatalf("second run is %d, first was %d", newer.Run, old.Run)
	}
	next := messages.Key{Run: old.Run, Version: 2}
	if err := c.Publish(ctx, publication(next, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Commit(ctx, next, 1); !errors.Is(err, messages.ErrFenced) {
		t.Errorf("a fenced run committed: %v", err)
	}
	if err := lease.Confirm(ctx); !errors.Is(err, messages.ErrFenced) {
		t.Errorf("confirmed a version of a fenced run: %v", err)
	}
	if _, err := c.AcquireLease(ctx, key, "r2"); !errors.Is(err, messages.ErrFenced) {
		t.Errorf("leased a version of a fenced run: %v", err)
	}
	if k, ok, err := c.Newest(ctx); ok || err != nil {
		t.Errorf("newest is %s of a fenced run (%v)", k, err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
}

func TestCommitNamesMissingRanks(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	key := messages.Key{Run: takeRun(t, c, "job", 5).Run, Version: 1}
	for _, rank := range []int{0, 4} {
		if err := c.Publish(natstest.Context(t, 5*time.Second), publication(key, rank, 5)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Commit(natstest.Context(t, 2*time.Second), key, 5)
	var missing *messages.RankError
	if !errors.Is(err, messages.ErrIncomplete) || !errors.As(err, &missing) || !slices.Equal(missing.Ranks, []int{1, 2, 3}) {
		t.Fatalf("got %v", err)
	}
	if err := c.Abandon(natstest.Context(t, 5*time.Second), key, "rank 2 died"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Commit(natstest.Context(t, 5*time.Second), key, 5); !errors.Is(err, messages.ErrAbandoned) {
		t.Errorf("committed an abandoned version: %v", err)
	}
}

func TestPublishAgainWithAnotherEndpoint(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 10*time.Second)
	key := messages.Key{Run: takeRun(t, c, "job", 1).Run, Version: 1}
	p := publication(key, 0, 1)
	for range 2 {
		if err := c.Publish(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	p.Endpoint.Incarnation = "life-2"
	if err := c.Publish(ctx, p); !errors.Is(err, messages.ErrConflict) {
		t.Errorf("replaced a table: %v", err)
	}
}

func TestInitRefusesAnotherConfiguration(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	nc := natstest.Connect(t, s)
	ctx := natstest.Context(t, 10*time.Second)
	cfg := memory()
	for range 2 {
		if err := messages.Init(ctx, nc, cfg); err != nil {
			t.Fatal(err)
		}
	}
	cfg.MaxAge = time.Hour
	err := messages.Init(ctx, nc, cfg)
	if !errors.Is(err, messages.ErrConfig) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"stream REFIT_org-tiny-moe-v2 exists", "max age is 168h0m0s, want 1h0m0s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := js.Stream(ctx, "REFIT_org-tiny-moe-v2"); err != nil || st.CachedInfo().Config.MaxAge != 7*24*time.Hour {
		t.Errorf("the stream was changed: %v, %v", st, err)
	}
	other := memory()
	other.Model = "nobody-initialised-this"
	if _, err := messages.Open(ctx, nc, other); !errors.Is(err, messages.ErrNoStream) {
		t.Errorf("opened a model that is not there: %v", err)
	}
	off := natstest.Connect(t, natstest.Start(t, natsd.Options{NoJetStream: true}))
	if err := messages.Init(ctx, off, cfg); !errors.Is(err, messages.ErrNoStream) {
		t.Errorf("initialised without JetStream: %v", err)
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 10*time.Second)
	if list, err := c.Statuses(ctx); err != nil || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
	want := messages.Status{
		Role: messages.RoleReceiver, Ranks: []int{0, 1}, Serving: messages.Key{Run: 1, Version: 2}, StageState: "reading",
		Failure: &messages.Failure{Class: "lease-lost", Text: "gone", Key: messages.Key{Run: 1, Version: 1}},
		Skipped: []messages.Key{{Run: 1, Version: 0}}, Arenas: []string{"a", "b"},
	}
	for _, name := range []string{"rx-1", "rx-0"} {
		if err := c.PutStatus(ctx, name, want); err != nil {
			t.Fatal(err)
		}
	}
	list, err := c.Statuses(ctx)
	if err != nil || len(list) != 2 || list[0].Name != "rx-0" || list[1].Failure.Class != "lease-lost" || list[1].Serving.Version != 2 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestMoreStatusesThanTheServerListsAtOnce: 1024 subjects are the limit of one request.
func TestMoreStatusesThanTheServerListsAtOnce(t *testing.T) {
	t.Parallel()
	const n = 1100
	s := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, s, memory())
	nc := natstest.Connect(t, s)
	for i := range n {
		name := fmt.Sprintf("rx-%d", i)
		body, err := messages.EncodeStatus(&messages.Status{Role: messages.RoleReceiver, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Publish("$KV.refit_status_"+messages.Token(model)+"."+name, body); err != nil {
			t.Fatal(err)
		}
	}
	ctx := natstest.Context(t, time.Minute)
	for {
		list, err := c.Statuses(ctx)
		if err == nil && len(list) == n {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%d statuses, %v", len(list), err)
		}
	}
}

// TestInitSaysWhatToDoWhenThereIsNoRoom: streams reserve their size.
func TestInitSaysWhatToDoWhenThereIsNoRoom(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{MaxStore: 512 << 20, MaxMemory: 512 << 20})
	cfg := messages.Config{Model: model, MaxBytes: 1 << 30}
	err := messages.Init(natstest.Context(t, 10*time.Second), natstest.Connect(t, s), cfg)
	if err == nil || !strings.Contains(err.Error(), "MaxBytes") {
		t.Errorf("got %v", err)
	}
}
