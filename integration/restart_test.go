package integration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// TestServerRestarts stops the server between two versions and starts it with its store. Nobody has to be started again.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1, durable: true})
	publishers := w.publishers("--versions", "2")
	r := w.receiver("host")
	r.serves(1)
	before := r.image()
	if err := w.server.Restart(); err != nil {
		t.Fatal(err)
	}
	r.unchanged(before)
	w.open(1)
	r.serves(2)
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// TestServerLosesData stops the server, and starts it with an empty store. When an operator has made the model again,
// publishers announce again what they hold: a receiver that starts now finds it, and the next versions follow.
func TestServerLosesData(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	publishers := w.publishers("--versions", "2")
	r := w.receiver("host")
	r.serves(1)
	before := r.image()
	w.restartEmpty()
	w.awaitCommit(1)
	late := w.receiver("late")
	late.serves(1)
	r.unchanged(before)
	w.open(1)
	r.serves(2)
	late.serves(2)
	r.leavesCleanly(true)
	late.leavesCleanly(true)
	leave(t, publishers...)
}

// restartEmpty restarts the server without anything that it knew, and makes the model anew.
func (w *world) restartEmpty() {
	w.t.Helper()
	w.server.Shutdown()
	if err := os.RemoveAll(filepath.Join(w.store, "jetstream")); err != nil {
		w.t.Fatal(err)
	}
	if err := w.server.Restart(); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, "the model is made again", func() (bool, string) {
		err := messages.Init(w.ctx, w.nc, w.messages())
		return err == nil, errText(err)
	})
}
