package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/proof"
	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// serves waits until the receiver has applied a version, and proves that it did: the label and every byte of each rank's
// arena, the status, the record. It is what an engine, an operator and a harness would look at.
func (r *receiver) serves(version uint64) tracing.Record {
	r.t.Helper()
	return r.servesValues(version, version)
}

// servesValues is serves for a version that has the values of another one.
func (r *receiver) servesValues(version, values uint64) tracing.Record {
	r.t.Helper()
	record := r.record(version, tracing.OutcomeApplied)
	r.shows(version, values)
	r.w.status(r.name, fmt.Sprintf("serves version %d and stages nothing", version), func(s messages.Status) bool {
		return s.Serving == key(version) && s.Staging.IsZero() && s.StageState == ""
	})
	if needed := record.Drydock.NeededBytes; needed == 0 || record.Bytes > needed || record.Bytes+record.Drydock.SavedBytes < needed {
		r.t.Errorf("%s read %d bytes for the %d that it needs, and says that it saved %d", r.name, record.Bytes, needed, record.Drydock.SavedBytes)
	}
	return record
}

// shows proves the bytes and labels of what is served, whoever may be running.
func (r *receiver) shows(version, values uint64) {
	r.t.Helper()
	for _, rank := range r.feeds() {
		if label := r.label(rank); label != key(version) {
			r.t.Errorf("arena of rank %d is labelled %v, expected %v", rank, label, key(version))
		}
		c, err := r.w.capture.Case(r.w.tp, rank, false)
		if err != nil {
			r.t.Fatal(err)
		}
		report, err := proof.Verify(r.w.ctx, proof.Input{
			Arena: r.arena(rank), Checkpoint: r.w.source, Capture: r.w.capture, Case: c, Seed: seed, Version: values,
		})
		if err != nil || report.Params == 0 {
			r.t.Fatalf("rank %d serves other bytes than version %d's: %d parameters compared: %v", rank, version, report.Params, err)
		}
	}
}

// label is what a rank's arena says that it holds.
func (r *receiver) label(rank int) (k messages.Key) {
	r.t.Helper()
	f, err := safetensors.Open(r.arena(rank))
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := fmt.Sscan(f.Metadata[arena.MetaRun]+" "+f.Metadata[arena.MetaVersion], &k.Run, &k.Version); err != nil {
		r.t.Fatalf("label of %s: %v in %v", r.arena(rank), err, f.Metadata)
	}
	return k
}

// image is every byte that a receiver serves, and where its name leads.
type image struct {
	target string
	ranks  [][]byte
}

func (r *receiver) image() image {
	r.t.Helper()
	target, err := os.Readlink(filepath.Join(r.root(), "current"))
	if err != nil {
		r.t.Fatal(err)
	}
	m := image{target: target}
	for _, rank := range r.feeds() {
		b, err := os.ReadFile(r.arena(rank))
		if err != nil {
			r.t.Fatal(err)
		}
		m.ranks = append(m.ranks, b)
	}
	return m
}

// unchanged proves that what serves is, byte for byte and by name, what served before.
func (r *receiver) unchanged(before image) {
	r.t.Helper()
	now := r.image()
	if now.target != before.target {
		r.t.Errorf("current leads to %s, before it led to %s", now.target, before.target)
	}
	for i, rank := range r.feeds() {
		if !bytes.Equal(now.ranks[i], before.ranks[i]) {
			r.t.Errorf("the arena of rank %d that serves has changed", rank)
		}
	}
}

// failed waits until the status tells of a failure of a version, of one of the classes.
func (r *receiver) failed(version uint64, classes ...refit.Class) *messages.Failure {
	r.t.Helper()
	s := r.w.status(r.name, fmt.Sprintf("version %d failed: %v", version, classes), func(s messages.Status) bool {
		return s.Failure != nil && s.Failure.Key == key(version) && slices.Contains(classes, refit.Class(s.Failure.Class))
	})
	return s.Failure
}

// leavesCleanly stops the receiver: exit code 0, and in its folder only what serves, if anything does.
func (r *receiver) leavesCleanly(serves bool) {
	r.t.Helper()
	if code := r.stop(); code != 0 {
		r.t.Errorf("%s left with exit code %d: %s", r.name, code, r.lastSaid())
	}
	r.holdsOnly(serves)
}

// holdsOnly checks that no file of a stage is left in the receiver's folder.
func (r *receiver) holdsOnly(serves bool) {
	r.t.Helper()
	entries, err := os.ReadDir(r.root())
	if err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"lock"}
	if target, err := os.Readlink(filepath.Join(r.root(), "current")); serves && err == nil {
		want = []string{"current", "lock", target}
	}
	if !slices.Equal(names, want) {
		r.t.Errorf("the folder of %s holds %s, expected %s", r.name, strings.Join(names, ", "), strings.Join(want, ", "))
	}
}

// unread checks that nobody holds a lease on a version.
func (w *world) unread(version uint64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("nobody holds version %d", version), func() (bool, string) {
		holders, err := w.eye.Holders(w.ctx, key(version))
		return err == nil && len(holders) == 0, fmt.Sprintf("held by %v, error %v", holders, err)
	})
}

// leave stops publishers that nobody reads from.
func leave(t *testing.T, publishers ...*process) {
	t.Helper()
	for _, p := range publishers {
		if code := p.stop(); code != 0 {
			t.Errorf("%s left with exit code %d: %s", p.name, code, p.lastSaid())
		}
	}
}

// holdsNothingThatServes checks that no name leads to an arena.
func (r *receiver) holdsNothingThatServes() {
	r.t.Helper()
	if target, err := os.Readlink(filepath.Join(r.root(), "current")); err == nil {
		r.t.Errorf("nothing was applied, and current leads to %s", target)
	}
}
