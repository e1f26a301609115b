package operator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// publish stores one rank's part of a version of a tiny model.
func publish(t *testing.T, c *messages.Control, k messages.Key, rank, world int) {
	t.Helper()
	l := &messages.Layout{
		Rank: rank, Regions: []int64{4096}, Names: []string{"w"}, DTypes: []messages.DType{messages.BF16},
		ShapeEnd: []uint32{2}, Shapes: []int64{int64(world), 8}, Grid: []int64{1, 8},
		Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{0}, Box: []int64{int64(rank), int64(rank) + 1, 0, 8},
	}
	e := &messages.Endpoint{
		Rank: rank, Host: "host-a", Incarnation: fmt.Sprint("life-", rank), Regions: []messages.EndpointRegion{{Nbytes: 4096}},
		Access: []messages.Access{{Transport: "tcp", Agent: "127.0.0.1:7000"}},
	}
	err := c.Publish(natstest.Context(t, 10*time.Second), messages.Publication{
		Key: k, Rank: rank, World: world, Layout: l, Endpoint: e, Tiles: &messages.Tiles{Digests: []uint64{k.Version}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// commit publishes and commits a version of all ranks.
func commit(t *testing.T, c *messages.Control, k messages.Key, world int) {
	t.Helper()
	for rank := range world {
		publish(t, c, k, rank, world)
	}
	if _, err := c.Commit(natstest.Context(t, 10*time.Second), k, world); err != nil {
		t.Fatal(err)
	}
}

// open gives the control plane of a model on a server of the test's own.
func open(t *testing.T) *messages.Control {
	t.Helper()
	return natstest.Open(t, natstest.Start(t, natsd.Options{}), messages.Config{Model: "org/tiny", Memory: true, Poll: 200 * time.Millisecond, LeaseTTL: 2 * time.Second})
}

func takeRun(t *testing.T, c *messages.Control, job string, world int) uint64 {
	t.Helper()
	run, err := c.TakeRun(natstest.Context(t, 10*time.Second), job, world)
	if err != nil {
		t.Fatal(err)
	}
	return run.Run
}

func TestFindKey(t *testing.T) {
	t.Parallel()
	c := open(t)
	ctx := natstest.Context(t, 20*time.Second)
	if _, err := FindKey(ctx, c, "3"); err == nil {
		t.Error("found version 3 of no run")
	}
	run := takeRun(t, c, "job", 1)
	if _, err := FindKey(ctx, c, Latest); !errors.Is(err, messages.ErrNotCommitted) {
		t.Errorf("latest of nothing: %v", err)
	}
	commit(t, c, key(run, 7), 1)
	for text, want := range map[string]messages.Key{Latest: key(1, 7), "7": key(1, 7), "9": key(1, 9), "4.2": key(4, 2)} {
		if got, err := FindKey(ctx, c, text); err != nil || got != want {
			t.Errorf("%q is %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "newest", "-1", "1.x", "0.1", "01.2"} {
		if _, err := FindKey(ctx, c, text); cli.Code(err) != cli.ExitUsage {
			t.Errorf("%q: %v", text, err)
		}
	}
}
