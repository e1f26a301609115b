package refit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// benchStage is a publisher and a receiver of one matrix, over a real transport. The publisher's slot is private memory,
// so that of shared memory only the two arenas are in use.
type benchStage struct {
	b         *testing.B
	publisher *Publisher
	receiver  *Receiver
	lines     *benchLines
	version   uint64
}

// benchLines keeps the last record.
type benchLines struct{ last tracing.Record }

// Write implements io.Writer.
func (l *benchLines) Write(b []byte) (n int, err error) {
	l.last, err = tracing.ParseLine(string(b))
	return len(b), err
}

func newBenchStage(b *testing.B, transport string, nbytes int64, digests bool) *benchStage {
	b.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "drydock-bench-") //nolint:usetesting // arenas want shared memory
	if err != nil {
		b.Skipf("no shared memory: %v", err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	control := natstest.Open(b, natstest.Start(b, natsd.Options{}), messages.Config{Model: "bench", Memory: true})
	const columns = 4096
	shape := []int64{nbytes / 2 / columns, columns}
	l := &messages.Layout{
		Regions: []int64{nbytes}, Names: []string{"w"}, DTypes: []messages.DType{messages.BF16}, ShapeEnd: []uint32{2}, Shapes: shape,
		Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{0}, Box: []int64{0, shape[0], 0, columns},
	}
	if digests {
		l.Grid = tiles.ChooseGrid(shape, 2, tiles.Options{})
	}
	slot, err := rdma.Alloc(nbytes, rdma.AllocOptions{Backing: rdma.Anonymous})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = slot.Close() })
	s := &benchStage{b: b, lines: &benchLines{}}
	incarnation := rdma.NewIncarnation()
	s.publisher, err = NewPublisher(b.Context(), PublisherConfig{
		Model: "bench", Incarnation: incarnation, World: 1, Job: "job", Control: control, Slots: []*rdma.Memory{slot}, Layout: l,
		Transports: []rdma.Transport{benchTransport(b, transport, incarnation, true)},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.publisher.Close() })
	s.receiver, err = NewReceiver(ReceiverConfig{
		Name: "bench", Model: "bench", Control: control, ArenaRoot: filepath.Join(dir, "arenas"), Lines: s.lines,
		Transports: []rdma.Transport{benchTransport(b, transport, rdma.NewIncarnation(), false)},
		Dests: []plan.Dest{{
			Params: []plan.Param{{Name: "w", DType: plan.BF16, Shape: shape}},
			Copies: []plan.Copy{{Source: "w", Shape: shape, Stride: []int64{columns, 1}}},
		}},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.receiver.Close() })
	return s
}

func benchTransport(b *testing.B, name, incarnation string, serve bool) (t rdma.Transport) {
	b.Helper()
	var err error
	if name == local.Name {
		t, err = local.New(local.Config{Incarnation: incarnation})
	} else {
		cfg := tcp.Config{Incarnation: incarnation}
		if serve {
			cfg.Listen = "127.0.0.1:0"
		}
		t, err = tcp.New(cfg)
	}
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { _ = t.Close() })
	return t
}

// publish commits a version all of whose tiles differ from the one before.
func (s *benchStage) publish() messages.Key {
	s.b.Helper()
	s.version++
	mem, err := s.publisher.Memory(s.b.Context(), s.version)
	if err == nil {
		for i := 0; i < len(mem.Bytes()); i += 256 { // less than a tile is wide: what is equal would be copied, not read
			mem.Bytes()[i] = byte(s.version)
		}
		_, err = s.publisher.Publish(s.b.Context(), s.version)
	}
	if err != nil {
		s.b.Fatal(err)
	}
	return s.publisher.Key(s.version)
}

func (s *benchStage) refit(key messages.Key) tracing.Record {
	s.b.Helper()
	staged, err := s.receiver.Stage(context.Background(), key)
	if err == nil {
		err = s.receiver.Apply(context.Background(), staged)
	}
	if err != nil {
		s.b.Fatal(err)
	}
	return s.lines.last
}

// BenchmarkStage is a refit of 1 GiB, by stage, with and without digests: what verification costs of the whole is the
// difference. The pause is a flip of a name.
func BenchmarkStage(b *testing.B) {
	nbytes := int64(1 << 30)
	if testing.Short() {
		nbytes = 64 << 20
	}
	for _, transport := range []string{local.Name, tcp.Name} {
		for _, digests := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/%dMiB/verified=%t", transport, nbytes>>20, digests), func(b *testing.B) {
				s := newBenchStage(b, transport, nbytes, digests)
				s.refit(s.publish()) // plan, connections and the first touch of everything
				b.SetBytes(nbytes)
				sums := map[tracing.Stage]float64{}
				var whole, alone float64
				for b.Loop() {
					b.StopTimer()
					key := s.publish()
					b.StartTimer()
					rec := s.refit(key)
					if rec.Bytes != nbytes || rec.Drydock.SavedBytes != 0 {
						b.Fatalf("%d bytes were read and %d saved, expected all of %d to be read", rec.Bytes, rec.Drydock.SavedBytes, nbytes)
					}
					whole += float64(rec.E2EMs)
					alone += float64(rec.UnattributedMs)
					for _, stage := range tracing.Stages() {
						sums[stage] += float64(rec.Stages.Get(stage).DurationMs)
					}
				}
				n := float64(b.N)
				for _, stage := range tracing.Stages() {
					if sums[stage] > 0 {
						b.ReportMetric(sums[stage]/n, stage.String()+"-ms")
					}
				}
				b.ReportMetric(whole/n, "e2e-ms")
				b.ReportMetric(100*alone/whole, "unattributed-%")
			})
		}
	}
}
