package rdma_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
)

// A publisher serves memory over two transports; a reader takes the first of its preference that works.
func Example() {
	publisher, regions, offer := publish()
	defer func() {
		_ = regions.Close()
		for _, t := range publisher {
			_ = t.Close()
		}
	}()
	offer.Accesses = offer.Accesses[1:] // it doesn't offer the first

	readers := []rdma.Transport{must(local.New(local.Config{})), must(tcp.New(tcp.Config{}))}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	peer, choice, err := rdma.Connect(ctx, readers, offer)
	check(err)
	fmt.Println("over", choice.Transport, "and not", choice.Skipped[0].Transport)

	// Columns 2 to 4 of four rows of eight bytes: one segment, however many rows.
	arena := must(rdma.Alloc(8, rdma.AllocOptions{}))
	column := rdma.Segment{Src: 2, Run: 2, N: [3]int64{1, 1, 4}, SrcStride: [3]int64{0, 0, 8}, DstStride: [3]int64{0, 0, 2}}
	transfer, err := peer.Read(arena, []rdma.Segment{column})
	check(err)
	check(transfer.Wait(ctx))
	fmt.Printf("%s\n", arena.Bytes())
	cancel()
	for _, t := range readers {
		_ = t.Close()
	}
	// Output:
	// over tcp and not local
	// cdklstAB
}

func publish() ([]rdma.Transport, rdma.Regions, rdma.Offer) {
	life := rdma.NewIncarnation()
	ts := []rdma.Transport{
		must(local.New(local.Config{Incarnation: life})),
		must(tcp.New(tcp.Config{Incarnation: life, Listen: "127.0.0.1:0"})),
	}
	m := must(rdma.Alloc(32, rdma.AllocOptions{}))
	copy(m.Bytes(), "abcdefghijklmnopqrstuvwxyzABCDEF")
	regions, err := rdma.RegisterAll(ts, m)
	check(err)
	accesses, err := rdma.AccessAll(ts)
	check(err)
	r := rdma.Remote{Host: must(rdma.HostID()), Incarnation: life, Regions: []rdma.RemoteRegion{regions[0].Describe()}}
	return ts, regions, rdma.Offer{Remote: r, Accesses: accesses}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
