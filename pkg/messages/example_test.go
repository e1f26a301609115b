package messages_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// A trainer of one rank publishes a version, and a receiver assembles it.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	server, err := natsd.Start(natsd.Options{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Shutdown()
	if err := publishAndRead(server.URL()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// committed 1.42: 1 rank, 32 bytes
	// rank 0 of host-a holds embed.weight [1 8]
}

func publishAndRead(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	nc, err := messages.Dial(url, messages.DialConfig{})
	if err != nil {
		return err
	}
	defer nc.Close()
	cfg := messages.Config{Model: "org/tiny", Memory: true}
	if err := messages.Init(ctx, nc, cfg); err != nil {
		return err
	}
	c, err := messages.Open(ctx, nc, cfg)
	if err != nil {
		return err
	}
	defer c.Close()

	// The trainer.
	run, err := c.TakeRun(ctx, "train-1", 1)
	if err != nil {
		return err
	}
	key := messages.Key{Run: run.Run, Version: 42}
	if err := c.Publish(ctx, publication(key, 0, 1)); err != nil {
		return err
	}
	m, err := c.Commit(ctx, key, 1)
	if err != nil {
		return err
	}
	fmt.Printf("committed %s: %d rank, %d bytes\n", m.Key, m.World, m.Nbytes())

	// The receiver: lease first, then assemble, read, confirm, install.
	lease, err := c.AcquireLease(ctx, key, "rollout-0")
	if err != nil {
		return err
	}
	v, err := c.Assemble(ctx, key)
	if err != nil {
		return err
	}
	r := v.Ranks[0]
	fmt.Printf("rank %d of %s holds %s %v\n", r.Layout.Rank, r.Endpoint.Host, r.Layout.Names[0], r.Layout.Shape(0))
	if err := lease.Confirm(ctx); err != nil {
		return err
	}
	if err := lease.Release(ctx); err != nil {
		return err
	}

	// The trainer again: the buffer is free once nobody reads it.
	return c.Retire(ctx, key, 0)
}
