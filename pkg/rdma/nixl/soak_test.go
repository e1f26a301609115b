package nixl

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

var soak = flag.Duration("soak", time.Second, "how long TestSoak drives the library")

// Reads go on while the garbage collector runs all the time, goroutines are preempted, a processor profile is taken and
// memory comes and goes: nothing of that may show in the library or in the bytes.
func TestSoak(t *testing.T) {
	l := library(t)
	p := newPair(t, l, Config{})
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	defer pprof.StopCPUProfile()
	src := rdmatest.Alloc(t, rigBytes, 1)
	reg := rdmatest.Register(t, p.Source, src)
	t.Cleanup(func() { _ = p.Reader.Close(); _ = p.Source.Close() })
	remote := rdmatest.RemoteOf(t, p, reg)
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { churn(&stop) })
	var reads atomic.Int64
	for i := range 3 {
		wg.Go(func() { soakReader(t, p.Reader, remote, src, uint64(i), &stop, &reads) })
	}
	<-time.After(*soak)
	stop.Store(true)
	wg.Wait()
	t.Logf("%d reads in %v", reads.Load(), *soak)
}

const rigBytes = 4 << 20

// churn makes garbage and stacks to be moved.
func churn(stop *atomic.Bool) {
	var keep [64][]byte
	for i := 0; !stop.Load(); i++ {
		keep[i%len(keep)] = make([]byte, 1+i%100_000+len(keep[(i+1)%len(keep)])%7)
		if i%1000 == 0 {
			runtime.GC()
		}
		runtime.Gosched()
	}
}

// soakReader reads random batches into memory that it registers, uses a few times and gives back.
func soakReader(t *testing.T, tr rdma.Transport, remote rdma.Remote, src *rdma.Memory, seed uint64, stop *atomic.Bool, reads *atomic.Int64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for !stop.Load() {
		dst, err := rdma.Alloc(rigBytes, rdma.AllocOptions{Backing: rdma.Backing(r.IntN(3) &^ 1)})
		if err != nil {
			t.Error(err)
			return
		}
		if err := soakPeer(tr, remote, src, dst, r, reads); err != nil {
			t.Error(err)
			stop.Store(true)
		}
		rdmatest.CloseMemory(t, dst)
	}
}

func soakPeer(tr rdma.Transport, remote rdma.Remote, src, dst *rdma.Memory, r *rand.Rand, reads *atomic.Int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), rdmatest.Deadline)
	defer cancel()
	p, err := tr.Connect(ctx, remote)
	if err != nil {
		return err
	}
	want := make([]byte, rigBytes)
	for range 5 {
		segs := rdmatest.RandomSegments(r, 1+r.IntN(50), []int64{rigBytes}, rigBytes)
		rdmatest.Apply(want, [][]byte{src.Bytes()}, segs)
		if err := rdmatest.Read(p, dst, segs); err != nil {
			return err
		}
		if !bytes.Equal(want, dst.Bytes()) {
			return errors.New("wrong bytes and no error")
		}
		reads.Add(1)
	}
	return p.Close()
}
