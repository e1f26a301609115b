package messages_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// wide makes a publication of n shards, cut along dimension 0, with two tiles each.
func wide(key messages.Key, rank, world, n int) messages.Publication {
	l := &messages.Layout{Rank: rank, Regions: []int64{int64(n) * 128}}
	for i := range n {
		l.Names = append(l.Names, fmt.Sprintf("model.layers.%d.mlp.experts.%d.down_proj.weight", i/128, i%128))
		l.DTypes = append(l.DTypes, messages.BF16)
		l.Shapes = append(l.Shapes, int64(world)*8, 8)
		l.Grid = append(l.Grid, 4, 8)
		l.ShapeEnd = append(l.ShapeEnd, uint32(2*i+2))
		l.Source = append(l.Source, uint32(i))
		l.Region = append(l.Region, 0)
		l.Offset = append(l.Offset, int64(i)*128)
		l.Box = append(l.Box, int64(rank)*8, int64(rank)*8+8, 0, 8)
	}
	p := publication(key, rank, world)
	p.Layout, p.Endpoint.Regions[0].Nbytes = l, l.Regions[0]
	p.Tiles = &messages.Tiles{Digests: make([]uint64, 2*n)}
	for i := range p.Tiles.Digests {
		p.Tiles.Digests[i] = key.Version * uint64(i+rank) * 0x9e3779b97f4a7c15
	}
	return p
}

// BenchmarkAssemble measures from the commit's acknowledgement to all tables decoded:
// cold, when the receiver knows nothing, and warm, when it knows all layouts. The
// server's own round trips for the same version are measured beside it. Announced is
// warm from the last rank's acknowledgement on: its commit, and the way of the news.
func BenchmarkAssemble(b *testing.B) {
	for _, size := range []struct{ ranks, shards int }{{16, 5000}, {64, 5000}, {256, 5000}, {1000, 500}} {
		b.Run(fmt.Sprintf("%dx%d", size.ranks, size.shards), func(b *testing.B) {
			s := natstest.Start(b, natsd.Options{})
			c := natstest.Open(b, s, messages.Config{Model: model, Memory: true, MaxBytes: 1 << 30})
			run := takeRun(b, c, "bench", size.ranks)
			version := uint64(0)
			next := func(b *testing.B) messages.Key {
				version++
				key := messages.Key{Run: run.Run, Version: version}
				publishWide(b, c, key, size.ranks, size.shards)
				return key
			}
			b.Run("cold", func(b *testing.B) {
				key := next(b)
				for b.Loop() {
					b.StopTimer()
					fresh := natstest.Open(b, s, messages.Config{Model: model, Memory: true, MaxBytes: 1 << 30})
					b.StartTimer()
					assemble(b, fresh, key)
				}
			})
			b.Run("warm", func(b *testing.B) {
				assemble(b, c, next(b))
				raw := natstest.Connect(b, s)
				var whole, server []time.Duration
				for b.Loop() {
					b.StopTimer()
					purge(b, raw, fmt.Sprintf("refit.%s.v.%d.%d.>", messages.Token(model), run.Run, version)) // the one before: all of them would fill the stream
					key := next(b)
					runtime.GC() // a receiver has no publisher in its process, whose garbage it would collect
					// Who reads first warms the server's caches: they take turns.
					if version%2 == 0 {
						server = append(server, readRaw(b, raw, key))
					}
					began := time.Now()
					b.StartTimer()
					assemble(b, c, key)
					b.StopTimer()
					whole = append(whole, time.Since(began))
					if version%2 == 1 {
						server = append(server, readRaw(b, raw, key))
					}
					b.StartTimer()
				}
				slices.Sort(whole)
				slices.Sort(server)
				b.ReportMetric(median(whole), "ms-p50")
				b.ReportMetric(median(server), "ms-server-p50")
				b.ReportMetric(median(whole)-median(server), "ms-beyond-p50")
				b.ReportMetric((whole[0]-server[0]).Seconds()*1e3, "ms-beyond-min")
			})
			b.Run("announced", func(b *testing.B) {
				receiver := natstest.Open(b, s, messages.Config{Model: model, Memory: true, MaxBytes: 1 << 30})
				assemble(b, receiver, next(b))
				watch, err := receiver.Watch(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				<-watch // the one that is there
				raw := natstest.Connect(b, s)
				for b.Loop() {
					b.StopTimer()
					purge(b, raw, fmt.Sprintf("refit.%s.v.%d.%d.>", messages.Token(model), run.Run, version))
					version++
					key := messages.Key{Run: run.Run, Version: version}
					publishTables(b, c, key, size.ranks, size.shards)
					runtime.GC()
					b.StartTimer()
					// From here on as in life: the rank that published last commits, the receiver hears of it.
					if _, err := c.Commit(b.Context(), key, size.ranks); err != nil {
						b.Fatal(err)
					}
					assemble(b, receiver, (<-watch).Key)
				}
			})
		})
	}
}

// median of sorted durations, in milliseconds.
func median(sorted []time.Duration) float64 { return sorted[len(sorted)/2].Seconds() * 1e3 }

func assemble(b *testing.B, c *messages.Control, key messages.Key) {
	b.Helper()
	if _, err := c.Assemble(b.Context(), key); err != nil {
		b.Fatal(err)
	}
}

func publishWide(tb testing.TB, c *messages.Control, key messages.Key, ranks, shards int) {
	tb.Helper()
	publishTables(tb, c, key, ranks, shards)
	if _, err := c.Commit(natstest.Context(tb, 2*time.Minute), key, ranks); err != nil {
		tb.Fatal(err)
	}
}

func publishTables(tb testing.TB, c *messages.Control, key messages.Key, ranks, shards int) {
	tb.Helper()
	ctx := natstest.Context(tb, 2*time.Minute)
	var wg sync.WaitGroup
	limit := make(chan struct{}, 8)
	for rank := range ranks {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			if err := c.Publish(ctx, wide(key, rank, ranks, shards)); err != nil {
				tb.Error(err)
			}
		})
	}
	wg.Wait()
}

// readRaw is a program that does nothing but what the server must do for an assembly: it
// asks the leader for the commit and a replica for all of the version's messages, both
// at once as an assembly does, and waits for the last of the answers. It decodes nothing.
func readRaw(b *testing.B, nc *nats.Conn, key messages.Key) time.Duration {
	b.Helper()
	stream := "REFIT_" + messages.Token(model)
	commit := fmt.Appendf(nil, `{"last_by_subj":"refit.%s.c.%s"}`, messages.Token(model), key)
	below := fmt.Appendf(nil, `{"multi_last":["refit.%s.v.%s.>"]}`, messages.Token(model), key)
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, below); err != nil {
		b.Fatal(err)
	}
	if _, err := nc.Request("$JS.API.STREAM.MSG.GET."+stream, commit, 10*time.Second); err != nil {
		b.Fatal(err)
	}
	for {
		m, err := sub.NextMsg(10 * time.Second)
		if err != nil {
			b.Fatal(err)
		}
		if m.Header.Get("Status") != "" {
			break
		}
	}
	took := time.Since(began)
	if err := sub.Unsubscribe(); err != nil {
		b.Fatal(err)
	}
	return took
}
