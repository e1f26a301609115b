package trainer

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/proof"
	"github.com/drydock-rl/drydock/internal/served"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// readerTP is the tensor-parallel size of the test's receiver, which fills all of its ranks.
const readerTP = 2

// reader makes a receiver of everything that a trainer publishes, with a capture of the trainer's checkpoint.
func reader(t *testing.T, tr *testTrainer) (*refit.Receiver, *capturegen.Capture) {
	t.Helper()
	capture, err := capturegen.Generate(tr.Shards.source, readerTP)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := capture.Encode(&b); err != nil {
		t.Fatal(err)
	}
	decoded, err := plan.DecodeCapture(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var dests []plan.Dest
	for rank := range readerTP {
		d, err := decoded.Dest(readerTP, rank, false)
		if err != nil {
			t.Fatal(err)
		}
		dests = append(dests, d)
	}
	transport := tr.net.New("reader")
	r, err := refit.NewReceiver(refit.ReceiverConfig{
		Name: "receiver", Host: "here", Model: "m", Control: tr.Control, ArenaRoot: filepath.Join(t.TempDir(), "arenas"),
		Transports: []rdma.Transport{transport}, Dests: dests, TP: readerTP, VerifyFloor: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), transport.Close()); err != nil {
			t.Error(err)
		}
	})
	return r, capture
}

// refitAndProve stages a version, all of its bytes verified, and compares what is served with the checkpoint.
func refitAndProve(t *testing.T, tr *testTrainer, r *refit.Receiver, capture *capturegen.Capture, version uint64) refit.Stats {
	t.Helper()
	ctx := natstest.Context(t, patience)
	s, err := r.Stage(ctx, tr.Publisher.Key(version))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(ctx, s); err != nil {
		t.Fatal(err)
	}
	for rank := range readerTP {
		c, err := capture.Case(readerTP, rank, false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = proof.Verify(ctx, proof.Input{
			Checkpoint: tr.Shards.source, Capture: capture, Case: c, Seed: tr.Steps.Seed, Version: version,
			Arena: filepath.Join(r.ArenaRoot(), "current", fmt.Sprintf("rank-%d.safetensors", rank)),
		})
		if err != nil {
			t.Errorf("version %d, rank %d: %v", version, rank, err)
		}
	}
	return s.Stats()
}

// mostWire bounds what is read to bring and to verify slices, as a multiple of their bytes. To verify a slice by its whole
// tensor takes the tensor-parallel size.
const mostWire = 1.1

// TestReceiversGetTheSameBytesFromBlocks reads one version out of every served layout, and has all of it verified without
// reading much more than it: each slice by its own tiles.
func TestReceiversGetTheSameBytesFromBlocks(t *testing.T) {
	t.Parallel()
	for _, mode := range []served.Mode{served.Plain, served.Blocks, served.Auto} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			tr := lone(t, Steps{Served: mode, Seed: 5}, func(s *Shards) {
				s.minBlock = 1
				if err := s.Serve(mode, served.Asked{TP: readerTP}); err != nil {
					t.Fatal(err)
				}
			})
			if got, want := tr.Shards.shown.Cut(), mode != served.Plain; got != want {
				t.Fatalf("cut in blocks: %t, want %t", got, want)
			}
			if err := tr.step(natstest.Context(t, patience), 1); err != nil {
				t.Fatal(err)
			}
			r, capture := reader(t, tr)
			got := refitAndProve(t, tr, r, capture, 1)
			if got.Verified != got.Brought || float64(got.Wire) > mostWire*float64(got.Needed) {
				t.Errorf("%d of %d bytes verified, %d read for %d needed", got.Verified, got.Brought, got.Wire, got.Needed)
			}
		})
	}
}

// TestTheLayoutFollowsTheReceivers has a publisher begin without receivers, and change its layout when one has said
// which ranks it fills. Both versions are read right by the same receiver.
func TestTheLayoutFollowsTheReceivers(t *testing.T) {
	t.Parallel()
	tr := lone(t, Steps{Served: served.Auto, Seed: 5}, func(s *Shards) { s.minBlock = 1 })
	ctx := natstest.Context(t, patience)
	if err := tr.step(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if tr.Shards.shown.Cut() {
		t.Fatal("blocks are served although nobody asked for slices")
	}
	r, capture := reader(t, tr)
	refitAndProve(t, tr, r, capture, 1)
	if err := tr.Control.PutStatus(ctx, "receiver", r.Status()); err != nil {
		t.Fatal(err)
	}
	if err := tr.step(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if !tr.Shards.shown.Cut() {
		t.Fatal("no blocks are served although a receiver takes slices")
	}
	refitAndProve(t, tr, r, capture, 2)
}
