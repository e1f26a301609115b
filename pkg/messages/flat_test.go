package messages_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// footprint is what must not grow with the number of versions. The server is in this
// process, and counts as well.
type footprint struct {
	rss         int64 // bytes
	goroutines  int
	descriptors int
	messages    uint64 // in the stream and the buckets
	nbytes      uint64
}

func (f footprint) String() string {
	return fmt.Sprintf("RSS %d KiB, %d goroutines, %d descriptors, %d messages of %d KiB stored",
		f.rss>>10, f.goroutines, f.descriptors, f.messages, f.nbytes>>10)
}

func measure(t *testing.T, js jetstream.JetStream) footprint {
	t.Helper()
	debug.FreeOSMemory()
	var f footprint
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skipf("no /proc to measure with: %v", err)
	}
	pages, err := strconv.ParseInt(string(bytes.Fields(statm)[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	f.rss = pages * int64(os.Getpagesize())
	f.goroutines = pprof.Lookup("goroutine").Count()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	f.descriptors = len(files)
	streams := js.ListStreams(natstest.Context(t, 10*time.Second))
	for s := range streams.Info() {
		f.messages, f.nbytes = f.messages+s.State.Msgs, f.nbytes+s.State.Bytes
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
	return f
}

// versionLife publishes, commits, reads by all receivers, and retires one version.
func versionLife(t *testing.T, trainer *messages.Control, receivers []*messages.Control, key messages.Key, ranks int) {
	t.Helper()
	ctx := natstest.Context(t, time.Minute)
	publishAll(t, trainer, key, ranks)
	var wg sync.WaitGroup
	for i, c := range receivers {
		wg.Go(func() {
			name := fmt.Sprintf("rx-%d", i)
			lease, err := c.AcquireLease(ctx, key, name)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := c.Assemble(ctx, key); err != nil {
				t.Error(err)
			}
			if err := c.PutStatus(ctx, name, messages.Status{Role: messages.RoleReceiver, Serving: key}); err != nil {
				t.Error(err)
			}
			if err := lease.Release(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for rank := range ranks {
		if err := trainer.Retire(ctx, key, rank); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyVersionsStayFlat: versions come, are read by every receiver, and go; nothing
// of them stays. With -chaos of more than a minute it is 1,000 versions × 16 receivers.
// It runs alone: goroutines and descriptors of other tests would be counted.
func TestManyVersionsStayFlat(t *testing.T) {
	const ranks = 2
	receivers, versions := 4, uint64(24)
	if *chaosFor > time.Minute {
		receivers, versions = 16, 1000
	}
	s := natstest.Start(t, natsd.Options{})
	cfg := memory()
	cfg.EndTTL, cfg.LeaseTTL = time.Second, 20*time.Second
	trainer := natstest.Open(t, s, cfg)
	var readers []*messages.Control
	for range receivers {
		readers = append(readers, natstest.Open(t, s, cfg))
	}
	js, err := jetstream.New(natstest.Connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	run := takeRun(t, trainer, "job", ranks).Run
	var before footprint
	began := time.Now()
	for v := uint64(1); v <= versions; v++ {
		versionLife(t, trainer, readers, messages.Key{Run: run, Version: v}, ranks)
		if t.Failed() {
			t.FailNow()
		}
		if v == versions/4 {
			before = measure(t, js)
		}
	}
	after := settled(t, js, before)
	t.Logf("%d versions × %d receivers in %v: after a quarter %v; in the end %v", versions, receivers, time.Since(began).Round(time.Millisecond), before, after)
	// What is left at any time: the run's record and blobs, the statuses, and marks of
	// leases and ends that have not expired.
	if after.messages > before.messages+uint64(receivers) || after.nbytes > before.nbytes+before.nbytes/2 {
		t.Error("the stream grows")
	}
	if after.goroutines > before.goroutines+4 || after.descriptors > before.descriptors+2 {
		t.Error("goroutines or descriptors grow")
	}
	if after.rss > before.rss+before.rss/4+16<<20 {
		t.Error("memory grows")
	}
}

// settled measures when what expires has expired, or has had its time to: marks of
// released leases live for 10 s.
func settled(t *testing.T, js jetstream.JetStream, before footprint) footprint {
	t.Helper()
	ctx := natstest.Context(t, 15*time.Second)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		f := measure(t, js)
		if f.messages <= before.messages && f.goroutines <= before.goroutines {
			return f
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return f
		}
	}
}
