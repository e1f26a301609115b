package integration

import (
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// TestVersionsAreServed runs the main job for each layout and transport: every version that is published is served, byte
// for byte, and everything is gone afterwards.
func TestVersionsAreServed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		shape
		receiver []string
	}{
		{name: "fsdp over local", shape: shape{trainers: 3, layout: "fsdp", transport: "local"}},
		{name: "fsdp over tcp, one rank", shape: shape{trainers: 2, layout: "fsdp", transport: "tcp", tp: 1}},
		{name: "tp over tcp", shape: shape{trainers: 4, layout: "tp", transport: "tcp"}, receiver: []string{"--staging-bytes", "1048576"}},
		{name: "hsdp over local", shape: shape{trainers: 4, layout: "hsdp", transport: "local"}},
		{name: "one trainer, auto", shape: shape{trainers: 1, layout: "fsdp", transport: "auto"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.receivers = 1
			w := newWorld(t, c.shape)
			r := w.receiver("host", c.receiver...)
			publishers := w.publishers("--versions", "2")
			first := r.serves(1)
			r.usedOnly(first)
			w.open(1)
			second := r.serves(2)
			if first.ColdWarm != "cold" || second.ColdWarm != "warm" {
				t.Errorf("the first version was planned %s and the second %s, expected cold and warm", first.ColdWarm, second.ColdWarm)
			}
			w.unread(2)
			r.leavesCleanly(true)
			leave(t, publishers...)
			r.shows(2, 2)
		})
	}
}

// usedOnly checks that no other transport than the one asked for carried bytes.
func (r *receiver) usedOnly(record tracing.Record) {
	r.t.Helper()
	used, _ := record.Stages.Get(tracing.SetupRegistration).Metadata[string(tracing.AttrTransport)].(string)
	if r.w.transport != "auto" && !strings.HasPrefix(used, r.w.transport+" ") || strings.Contains(used, ",") {
		r.t.Errorf("bytes came over %q, expected only %s", used, r.w.transport)
	}
}

// TestReceiverStartsFirst has a receiver wait for trainers that are not there yet.
func TestReceiverStartsFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{})
	r := w.receiver("early")
	s := w.status("early", "follows, serves nothing", func(s messages.Status) bool { return s.Role == messages.RoleReceiver })
	if !s.Serving.IsZero() || s.Failure != nil {
		t.Errorf("before any version the status is %+v", s)
	}
	r.holdsNothingThatServes()
	publishers := w.publishers("--versions", "1")
	r.serves(1)
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// TestReceiverStartsLate has one start when two versions are gone and two more are there: it takes the newest at once,
// and none of the others.
func TestReceiverStartsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{})
	publishers := w.publishers("--versions", "4", "--await-receivers", "0")
	w.awaitCommit(4)
	for v := uint64(1); v <= 2; v++ {
		if why := w.why(v); why.Manifest != nil || len(why.Published) > 0 {
			t.Errorf("version %d was to be gone: %s", v, why)
		}
	}
	r := w.receiver("late")
	r.serves(4)
	for _, record := range r.records() {
		if record.Version != 4 {
			t.Errorf("the late receiver staged version %d", record.Version)
		}
	}
	r.leavesCleanly(true)
	leave(t, publishers...)
}
