package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// shape is what a world is made of. Zero: two trainers in fsdp, one receiver process of two ranks, over tcp.
type shape struct {
	trainers  int
	layout    string
	transport string
	tp        int
	receivers int  // real receivers that publishers wait for before the next version, besides the gate
	durable   bool // streams on disk, fsynced
}

// world is one server, one model on it, and the processes of that model.
type world struct {
	shape
	t      *testing.T
	ctx    context.Context // ends with the test, or after twice the patience
	server *natsd.Server
	store  string // the server's folder
	nc     *nats.Conn
	eye    *messages.Control
	model  string
	arenas string

	source  *checkpoint.Checkpoint
	capture *capturegen.Capture
}

// newWorld starts a server and makes the model on it; no program runs yet.
func newWorld(t *testing.T, s shape) *world {
	t.Helper()
	w := &world{shape: s.withDefaults(), t: t, ctx: natstest.Context(t, 2*patience), store: t.TempDir(), model: "m-" + strconv.Itoa(os.Getpid())}
	w.arenas = arenaFolder(t)
	w.server = natstest.Start(t, natsd.Options{Dir: w.store, SyncAlways: s.durable})
	w.openEye()
	var err error
	if w.source, err = checkpoint.Open(built.checkpoint); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.source.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := os.ReadFile(built.captures[w.tp])
	if err != nil {
		t.Fatal(err)
	}
	if w.capture, err = capturegen.Decode(b); err != nil {
		t.Fatal(err)
	}
	return w
}

func (s shape) withDefaults() shape {
	if s.trainers == 0 {
		s.trainers = 2
	}
	if s.layout == "" {
		s.layout = "fsdp"
	}
	if s.transport == "" {
		s.transport = "tcp"
	}
	if s.tp == 0 {
		s.tp = 2
	}
	return s
}

func (w *world) messages() messages.Config {
	return messages.Config{Model: w.model, Memory: !w.durable, MaxBytes: 64 << 20}
}

// openEye creates the model and opens the test's own view of it.
func (w *world) openEye() {
	w.t.Helper()
	w.nc = natstest.Connect(w.t, w.server)
	if err := messages.Init(w.ctx, w.nc, w.messages()); err != nil {
		w.t.Fatal(err)
	}
	eye, err := messages.Open(w.ctx, w.nc, w.messages())
	if err != nil {
		w.t.Fatal(err)
	}
	w.eye = eye
	w.t.Cleanup(func() { _ = eye.Close() })
}

// publisher starts one trainer rank. Later arguments win over earlier ones.
func (w *world) publisher(rank int, args ...string) *process {
	w.t.Helper()
	return start(w.t, fmt.Sprintf("publisher-%d", rank), "publisher", w.publisherArgs(rank, args...)...)
}

func (w *world) publisherArgs(rank int, args ...string) []string {
	return append([]string{
		"--nats", w.server.URL(), "--model", w.model, "--job", "job", "--rank", strconv.Itoa(rank), "--world", strconv.Itoa(w.trainers),
		"--checkpoint", built.checkpoint, "--layout", w.layout, "--transport", w.transport, "--listen", "127.0.0.1:0",
		"--seed", strconv.Itoa(seed), "--interval", "0s", "--await-receivers", strconv.Itoa(w.receivers + 1),
	}, args...)
}

// publishers starts all trainer ranks.
func (w *world) publishers(args ...string) []*process {
	w.t.Helper()
	all := make([]*process, w.trainers)
	for rank := range all {
		all[rank] = w.publisher(rank, args...)
	}
	return all
}

// receiver starts a receiver of all destination ranks.
func (w *world) receiver(name string, args ...string) *receiver {
	w.t.Helper()
	return &receiver{process: start(w.t, name, "receiver", w.receiverArgs(name, everyRank(w.tp), args...)...), w: w}
}

func (w *world) receiverArgs(name string, ranks []int, args ...string) []string {
	return append([]string{
		"--nats", w.server.URL(), "--model", w.model, "--name", name, "--capture", built.captures[w.tp],
		"--tp", strconv.Itoa(w.tp), "--ranks", flagOf(ranks), "--arena-dir", w.arenas, "--transport", w.transport,
	}, args...)
}

// everyRank lists all ranks below n.
func everyRank(n int) (ranks []int) {
	for r := range n {
		ranks = append(ranks, r)
	}
	return ranks
}

// flagOf writes ranks as the flag takes them.
func flagOf(ranks []int) string {
	words := make([]string, len(ranks))
	for i, r := range ranks {
		words[i] = strconv.Itoa(r)
	}
	return strings.Join(words, ",")
}

// key names a version of the first run.
func key(version uint64) messages.Key { return messages.Key{Run: 1, Version: version} }

// open lets the publishers go on past a version, as soon as the real receivers serve it too.
func (w *world) open(version uint64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the gate is open for what comes after version %d", version), func() (bool, string) {
		err := w.eye.PutStatus(w.ctx, "gate", messages.Status{Role: messages.RoleReceiver, Serving: key(version), Updated: time.Now()})
		return err == nil, errText(err)
	})
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// awaitCommit waits until a version is the newest committed one.
func (w *world) awaitCommit(version uint64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("version %d is committed", version), func() (bool, string) {
		newest, found, err := w.eye.Newest(w.ctx)
		return err == nil && found && newest == key(version), fmt.Sprintf("newest %v, found %v, error %v", newest, found, err)
	})
}

// why is what the control plane knows of a version.
func (w *world) why(version uint64) *messages.Report {
	w.t.Helper()
	r, err := w.eye.Why(w.ctx, key(version))
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// status waits until the status of a process is as wanted.
func (w *world) status(name, what string, wanted func(messages.Status) bool) (found messages.Status) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the status of %s: %s", name, what), func() (bool, string) {
		all, err := w.eye.Statuses(w.ctx)
		if err != nil {
			return false, err.Error()
		}
		for _, s := range all {
			if s.Name == name && wanted(s) {
				found = s
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", all)
	})
	return found
}

// receiver is a receiver process and where its arenas are.
type receiver struct {
	*process
	w     *world
	host  string // folder of its host's arenas; "": the world's
	ranks []int  // that it feeds; nil: all
}

func (r *receiver) root() string {
	if r.host != "" {
		return filepath.Join(r.host, r.name)
	}
	return filepath.Join(r.w.arenas, r.name)
}

// feeds lists the ranks that the receiver has arenas for.
func (r *receiver) feeds() []int {
	if r.ranks != nil {
		return r.ranks
	}
	return everyRank(r.w.tp)
}

// arena is the path by which engines read a rank.
func (r *receiver) arena(rank int) string {
	return filepath.Join(r.root(), "current", fmt.Sprintf("rank-%d.safetensors", rank))
}

// siteConfig is a model in memory.
func siteConfig(model string) messages.Config {
	return messages.Config{Model: model, Memory: true, MaxBytes: 16 << 20}
}
