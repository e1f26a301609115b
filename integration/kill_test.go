package integration

import (
	"slices"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// reading waits until a receiver says that it reads a version.
func (r *receiver) reading(version uint64) {
	r.t.Helper()
	r.w.status(r.name, "reads", func(s messages.Status) bool { return s.Staging == key(version) && s.StageState == "reading" })
}

// hangs brings a receiver of version 1 to the middle of staging version 2, where it stays: one of its sources is frozen
// after it has committed version 2. It returns the frozen publisher.
func (w *world) hangs(r *receiver, publishers []*process) *process {
	w.t.Helper()
	r.serves(1)
	r.freeze()
	w.open(1)
	w.awaitCommit(2)
	source := publishers[1]
	source.freeze()
	r.thaw()
	r.reading(2)
	return source
}

// TestReceiverKilledInMidStage kills a receiver while it reads. What serves must be what served before, to the byte; the
// next life goes on from there.
func TestReceiverKilledInMidStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	publishers := w.publishers("--versions", "3")
	r := w.receiver("host")
	before := func() image { r.serves(1); return r.image() }()
	source := w.hangs(r, publishers)
	r.unchanged(before)
	r.kill()
	r.unchanged(before)
	r.shows(1, 1)

	source.thaw()
	r = w.receiver("host")
	r.serves(2)
	w.open(2)
	r.serves(3)
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// TestReceiverStoppedInMidStage sends SIGTERM instead: the receiver gives its lease back and leaves with exit code 0, the
// old version in place, and what it had of the new one where a next life goes on with it.
func TestReceiverStoppedInMidStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	publishers := w.publishers("--versions", "2")
	r := w.receiver("host")
	r.serves(1)
	before := r.image()
	source := w.hangs(r, publishers)
	if code := r.stop(); code != 0 {
		t.Errorf("left with exit code %d: %s", code, r.lastSaid())
	}
	r.unchanged(before)
	r.shows(1, 1)
	w.unread(2)
	source.thaw()
	r = w.receiver("host")
	r.serves(2)
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// TestPublisherKilledInMidPublish kills the only rank that has published its part, and starts it again. The version that
// lies half elsewhere now must never be seen by anybody; the next one is whole.
func TestPublisherKilledInMidPublish(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	r := w.receiver("host")
	first := w.publisher(0, "--versions", "2")
	w.awaitPart(1, 0)
	first.kill()
	if why := w.why(1); why.Manifest != nil {
		t.Fatalf("version 1 was committed without rank 1: %s", why)
	}
	again := w.publisher(0, "--versions", "2")
	w.awaitEnd(1)
	other := w.publisher(1, "--versions", "2")
	r.serves(2)
	w.neverStaged(r, 1)
	r.leavesCleanly(true)
	leave(t, again, other)
}

// TestPublisherKilledBeforeCommit kills it when its part is there and the other rank commits the version without it. The
// bytes are gone, so nobody can serve the version; when the rank is back it withdraws it, and the next one is whole.
func TestPublisherKilledBeforeCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	r := w.receiver("host")
	first := w.publisher(0, "--versions", "2")
	w.awaitPart(1, 0)
	first.kill()
	other := w.publisher(1, "--versions", "2")
	r.failed(1, refit.SourceLost)
	r.holdsNothingThatServes()
	again := w.publisher(0, "--versions", "2")
	r.serves(2)
	if why := w.why(1); why.Ended == nil {
		t.Errorf("version 1, whose bytes are gone, still stands: %s", why)
	}
	r.leavesCleanly(true)
	leave(t, again, other)
}

// TestPublisherKilledBetweenVersions has a version serve when a rank publishes its part of the next and is killed.
func TestPublisherKilledBetweenVersions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	r := w.receiver("host")
	publishers := w.publishers("--versions", "3")
	r.serves(1)
	before := r.image()
	publishers[0].freeze()
	w.open(1)
	w.awaitPart(2, 1)
	publishers[1].kill()
	publishers[1] = w.publisher(1, "--versions", "3")
	w.awaitEnd(2)
	r.unchanged(before)
	publishers[0].thaw()
	r.serves(3)
	w.neverStaged(r, 2)
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// awaitPart waits until exactly one rank has published its part of a version.
func (w *world) awaitPart(version uint64, rank int) {
	w.t.Helper()
	eventually(w.t, "one rank's part is published", func() (bool, string) {
		why := w.why(version)
		return slices.Equal(why.Published, []int{rank}), why.String()
	})
}

// awaitEnd waits until a version is ended by name.
func (w *world) awaitEnd(version uint64) {
	w.t.Helper()
	eventually(w.t, "the version is ended by name", func() (bool, string) {
		why := w.why(version)
		return why.Ended != nil && why.Ended.State == messages.EndAbandoned, why.String()
	})
}

// neverStaged checks that a version was neither committed nor tried by the receiver.
func (w *world) neverStaged(r *receiver, version uint64) {
	w.t.Helper()
	if why := w.why(version); why.Manifest != nil || why.Ended == nil || why.Ended.State != messages.EndAbandoned {
		w.t.Errorf("version %d was to be abandoned: %s", version, why)
	}
	for _, record := range r.records() {
		if record.Version == version {
			w.t.Errorf("the receiver staged version %d: %s", version, record.Drydock.Outcome)
		}
	}
}
