package integration

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// forged is a version that the test writes itself, out of the parts of version 1.
type forged struct {
	tables   []*messages.Table
	manifest *messages.Manifest
}

// forge copies version 1 under another number; spoil changes what would be consistent.
func (w *world) forge(version uint64, spoil func(*forged)) {
	w.t.Helper()
	f := forged{manifest: &messages.Manifest{Model: w.model, Key: key(version), World: w.trainers}}
	for rank := range w.trainers {
		table, err := messages.DecodeTable(w.raw(fmt.Sprintf("v.1.1.t.%d", rank)))
		if err != nil {
			w.t.Fatal(err)
		}
		table.Key = key(version)
		f.tables = append(f.tables, table)
	}
	for rank, table := range f.tables {
		b, err := messages.EncodeTable(table)
		if err != nil {
			w.t.Fatal(err)
		}
		w.put(fmt.Sprintf("v.1.%d.t.%d", version, rank), b)
		f.manifest.Ranks = append(f.manifest.Ranks, messages.ManifestRank{
			Table: sha256.Sum256(b), Layout: table.Layout.Digest, Endpoint: table.Endpoint.Digest, Tiles: table.Tiles.Digest, Nbytes: table.Nbytes,
		})
	}
	spoil(&f)
	b, err := messages.EncodeManifest(f.manifest)
	if err != nil {
		w.t.Fatal(err)
	}
	w.put(fmt.Sprintf("c.1.%d", version), b)
}

func (w *world) subject(rest string) string { return "refit." + messages.Token(w.model) + "." + rest }

// raw reads a message of the model's stream.
func (w *world) raw(rest string) []byte {
	w.t.Helper()
	js, err := jetstream.New(w.nc)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := js.Stream(w.ctx, "REFIT_"+messages.Token(w.model))
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(w.ctx, w.subject(rest))
	if err != nil {
		w.t.Fatalf("read %s: %v", rest, err)
	}
	return m.Data
}

func (w *world) put(rest string, b []byte) {
	w.t.Helper()
	js, err := jetstream.New(w.nc)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := js.Publish(w.ctx, w.subject(rest), b); err != nil {
		w.t.Fatalf("write %s: %v", rest, err)
	}
}

// TestContradictions commits versions whose manifest and tables say different things. None may be staged, whatever they
// contradict each other in; the old version serves, and a good one after them is applied.
func TestContradictions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	publishers := w.publishers("--versions", "1")
	r := w.receiver("host")
	r.serves(1)
	before := r.image()
	version := uint64(1)
	for _, c := range []struct {
		name  string
		says  string
		spoil func(*forged)
	}{
		{"another table", "table", func(f *forged) { f.manifest.Ranks[1].Table[0] ^= 1 }},
		{"tables exchanged", "table", func(f *forged) {
			f.manifest.Ranks[0].Table, f.manifest.Ranks[1].Table = f.manifest.Ranks[1].Table, f.manifest.Ranks[0].Table
		}},
		{"another layout", "layout", func(f *forged) { f.manifest.Ranks[1].Layout = f.manifest.Ranks[0].Layout }},
		{"another endpoint", "endpoint", func(f *forged) { f.manifest.Ranks[1].Endpoint[3] ^= 1 }},
		{"other digests", "tile digests", func(f *forged) { f.manifest.Ranks[0].Tiles[3] ^= 1 }},
		{"other bytes", "bytes", func(f *forged) { f.manifest.Ranks[1].Nbytes++ }},
	} {
		version++
		w.forge(version, c.spoil)
		failure := r.failed(version, refit.Torn)
		if !strings.Contains(failure.Text, c.says) || !strings.Contains(failure.Text, "rank") {
			t.Errorf("%s: the failure names neither %q nor a rank: %s", c.name, c.says, failure.Text)
		}
		r.unchanged(before)
	}
	version++
	w.forge(version, func(*forged) {})
	r.record(version, tracing.OutcomeApplied)
	r.shows(version, 1)
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// TestVersionNeverCompletes has one rank never come. Nobody sees a version, and the rank that waits ends by an error that
// names who is missing.
func TestVersionNeverCompletes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1, trainers: 3})
	r := w.receiver("host")
	p := w.publisher(1, "--commit-timeout", "2s")
	w.lead(3)
	code, line := p.ended(), p.lastSaid()
	if code != 3 || !containsAll(line, []string{"version 1.1", "tables are missing", "ranks 0,2", "2s"}) {
		t.Errorf("the rank that waited ended with exit code %d and said: %s", code, line)
	}
	w.neverStaged(r, 1)
	r.holdsNothingThatServes()
	r.leavesCleanly(false)
}

// lead takes the run in the place of rank 0, which then does nothing more.
func (w *world) lead(world int) {
	w.t.Helper()
	if _, err := w.eye.TakeRun(w.ctx, "job", world); err != nil {
		w.t.Fatal(err)
	}
}

// TestRankZeroNeverComes has a rank wait for a run that nobody takes.
func TestRankZeroNeverComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{})
	p := w.publisher(1, "--commit-timeout", "1s")
	if code, line := p.ended(), p.lastSaid(); code != 3 || !containsAll(line, []string{"rank 0", "job"}) {
		t.Errorf("the rank that waited ended with exit code %d and said: %s", code, line)
	}
}
