package integration

import (
	"slices"
	"strconv"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// Each process is killed, and stopped, at each stage of the cycle. The tables here are of real processes and signals; the
// faults that need none, such as a source that sends wrong bytes or a job that takes over, are in the table of package
// refit (TestFaultAtEachStage).

// receiverMoments are where a receiver's cycle is struck, in order.
var receiverMoments = []moment{
	{"leased and assembled", tracing.PhaseStage, "control_discovery", true},
	{"planned", tracing.PhaseStage, "transfer_planning", true},
	{"connecting", tracing.PhaseStage, "setup_registration", false},
	{"reading begins", tracing.PhaseStage, "wire_transfer", false},
	{midRead, tracing.PhaseStage, "", false},
	{"all read", tracing.PhaseStage, "wire_transfer", true},
	{"sealed", tracing.PhaseStage, "receive_sync", true},
	{"staged", tracing.PhaseStage, tracing.PhaseStage, true},
	{"apply begins", tracing.PhaseApply, tracing.PhaseApply, false},
	{inInstaller, tracing.PhaseApply, "", false},
	{"flipped, not shown yet", tracing.PhaseApply, "installation", true},
	{"shown", tracing.PhaseApply, "post_install", true},
}

// publisherMoments are where a rank's publication is struck, in order.
var publisherMoments = []moment{
	{"publish begins", "", "publish", false},
	{"uploading", "", "upload", false},
	{"uploaded", "", "upload", true},
	{"committed", "", "commit", true},
	{"published", "", "publish", true},
}

// before says whether the i-th of the moments lies before the one of that name.
func before(moments []moment, i int, name string) bool {
	return i < slices.IndexFunc(moments, func(m moment) bool { return m.Name == name })
}

// stopAt arms version first+i with the i-th moment.
func stopAt(moments []moment, first uint64) map[uint64]moment {
	stops := map[uint64]moment{}
	for i, m := range moments {
		stops[first+uint64(i)] = m
	}
	return stops
}

// recordsOf checks that a process has written as many records of a version as there are outcomes, and these.
func (p *process) recordsOf(version uint64, outcomes ...tracing.Outcome) {
	p.t.Helper()
	var got []tracing.Outcome
	for _, r := range p.records() {
		if r.Version == version {
			got = append(got, r.Drydock.Outcome)
		}
	}
	if !slices.Equal(got, outcomes) {
		p.t.Errorf("%s: version %d has the records %q, expected %q", p.name, version, got, outcomes)
	}
}

// TestReceiverKilledAtEachStage kills one life of the receiver after the other, each a stage further. What serves is the
// old version until the flip and the new one from then on, whole, and the next life serves the version that the last one
// was killed in.
func TestReceiverKilledAtEachStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	publishers := w.publishers("--versions", strconv.Itoa(len(receiverMoments)+1))
	stops := stopAt(receiverMoments, 2)
	r := w.actingReceiver("host", map[uint64]moment{2: stops[2]})
	r.serves(1)
	for i, m := range receiverMoments {
		v := uint64(i + 2)
		live, flipped := r.image(), !before(receiverMoments, i, "flipped, not shown yet")
		w.open(v - 1)
		r.stands(m.Name)
		r.recordsOf(v)
		if !flipped {
			r.unchanged(live)
		}
		r.kill()
		if flipped {
			r.shows(v, v)
		} else {
			r.unchanged(live)
			r.shows(v-1, v-1)
		}
		r = w.actingReceiver("host", map[uint64]moment{v + 1: stops[v+1]})
		if flipped { // there is nothing left to do
			w.status("host", "serves it", func(s messages.Status) bool { return s.Serving == key(v) && s.Staging.IsZero() })
			r.recordsOf(v)
		} else {
			r.serves(v)
			r.recordsOf(v, tracing.OutcomeApplied)
		}
		w.unread(v)
		if t.Failed() {
			t.Fatalf("killed: %s", m.Name)
		}
	}
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// TestReceiverStoppedAtEachStage stops one receiver for a moment at each stage of a version after the other. Nothing is
// lost by it, and nothing is reported.
func TestReceiverStoppedAtEachStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	publishers := w.publishers("--versions", strconv.Itoa(len(receiverMoments)+1))
	r := w.actingReceiver("host", stopAt(receiverMoments, 2))
	r.serves(1)
	for i, m := range receiverMoments {
		v := uint64(i + 2)
		live := r.image()
		w.open(v - 1)
		r.stands(m.Name)
		if before(receiverMoments, i, "flipped, not shown yet") {
			r.unchanged(live)
		}
		r.thaw()
		r.serves(v)
		r.recordsOf(v, tracing.OutcomeApplied)
		w.unread(v)
	}
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// TestReceiverStoppedBeyondItsLease stops it until its lease has expired. What it read since can't be trusted: the stage
// fails, says so, and the version is staged again. Once it is sealed, the lease has done its work.
func TestReceiverStoppedBeyondItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	moments := receiverMoments[:slices.IndexFunc(receiverMoments, func(m moment) bool { return m.Name == "staged" })]
	publishers := w.publishers("--versions", strconv.Itoa(len(moments)+1))
	r := w.actingReceiver("host", stopAt(moments, 2))
	r.serves(1)
	for i, m := range moments {
		v := uint64(i + 2)
		live := r.image()
		w.open(v - 1)
		r.stands(m.Name)
		w.unread(v)
		r.unchanged(live)
		r.thaw()
		r.serves(v)
		if before(moments, i, "sealed") {
			r.recordsOf(v, tracing.OutcomeFailed, tracing.OutcomeApplied)
			r.failed(v, refit.LeaseLost)
		} else {
			r.recordsOf(v, tracing.OutcomeApplied)
		}
		w.unread(v)
		if t.Failed() {
			t.Fatalf("stopped: %s", m.Name)
		}
	}
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// TestServerRestartedAtEachStage has the message server go away and come back, with its store, while the receiver stands
// at a stage. Those between which nothing is asked of the server are left out: the lease of each must expire by itself.
func TestServerRestartedAtEachStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1, durable: true})
	var moments []moment
	for _, m := range receiverMoments {
		if slices.Contains([]string{"leased and assembled", midRead, "staged", "apply begins", inInstaller, "flipped, not shown yet"}, m.Name) {
			moments = append(moments, m)
		}
	}
	publishers := w.publishers("--versions", strconv.Itoa(len(moments)+1))
	r := w.actingReceiver("host", stopAt(moments, 2))
	r.serves(1)
	for i, m := range moments {
		v := uint64(i + 2)
		live := r.image()
		w.open(v - 1)
		r.stands(m.Name)
		if err := w.server.Restart(); err != nil {
			t.Fatal(err)
		}
		if before(moments, i, "flipped, not shown yet") {
			r.unchanged(live)
		}
		r.thaw()
		r.serves(v)
		w.unread(v)
		if t.Failed() {
			t.Fatalf("restarted: %s", m.Name)
		}
	}
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// TestPublisherStoppedAtEachStage stops a trainer rank for a moment at each stage of its publication.
func TestPublisherStoppedAtEachStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	versions := len(publisherMoments) + 1
	other := w.publisher(0, "--versions", strconv.Itoa(versions))
	p := w.actingPublisher(1, uint64(versions), stopAt(publisherMoments, 2))
	r := w.receiver("host")
	r.serves(1)
	for i, m := range publisherMoments {
		v := uint64(i + 2)
		live := r.image()
		w.open(v - 1)
		p.stands(m.Name)
		if before(publisherMoments, i, "uploaded") { // its part is not there: nobody can have committed
			r.unchanged(live)
		}
		p.thaw()
		r.serves(v)
		r.recordsOf(v, tracing.OutcomeApplied)
	}
	r.leavesCleanly(true)
	leave(t, other, p)
}

// TestPublisherKilledAtEachStage kills one life of a trainer rank after the other, each a stage further in its
// publication. A version whose bytes are gone with it is never served in part; what is served in the end is whole.
func TestPublisherKilledAtEachStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	versions := uint64(len(publisherMoments) + 2)
	other := w.publisher(0, "--versions", strconv.Itoa(int(versions)))
	stops := stopAt(publisherMoments, 2)
	p := w.actingPublisher(1, versions, map[uint64]moment{2: stops[2]})
	r := w.receiver("host")
	r.serves(1)
	w.open(1)
	for i, m := range publisherMoments {
		v := uint64(i + 2)
		p.stands(m.Name)
		if before(publisherMoments, i, "uploaded") {
			if why := w.why(v); why.Manifest != nil {
				t.Fatalf("%s: version %d was committed without rank 1: %s", m.Name, v, why)
			}
		}
		p.kill()
		r.isWhole()
		p = w.actingPublisher(1, versions, map[uint64]moment{v + 1: stops[v+1]})
		w.open(v)
	}
	r.record(versions, tracing.OutcomeApplied)
	r.shows(versions, versions)
	r.leavesCleanly(true)
	leave(t, other, p)
}

// isWhole proves that all ranks serve one and the same version, whichever.
func (r *receiver) isWhole() {
	r.t.Helper()
	label := r.label(0) // a flip may come in between: the version that is looked at is the one that is named
	eventually(r.t, "one version is served throughout the look", func() (bool, string) {
		before := label
		r.shows(label.Version, label.Version)
		label = r.label(0)
		return label == before, "the version changed"
	})
}
