package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/inproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// world is a server, a sidecar on a socket, and whoever asks it.
type world struct {
	t       *testing.T
	ctx     context.Context
	control *messages.Control
	net     *inproc.Net
	root    string
	socket  string
	change  func(*Config)
	sidecar *Sidecar
	client  *http.Client
	end     func() error // of the sidecar
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "sc") //nolint:usetesting // sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{t: t, ctx: natstest.Context(t, patience), net: inproc.NewNet(), root: filepath.Join(dir, "arenas"), socket: filepath.Join(dir, "s"), change: change}
	w.control = natstest.Open(t, natstest.Start(t, natsd.Options{}), messages.Config{Model: "m", Memory: true, LeaseTTL: 2 * time.Second})
	w.client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", w.socket)
		},
	}}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start begins a life of the sidecar.
func (w *world) start() {
	w.t.Helper()
	cfg := Config{
		Model: "m", Control: w.control, ArenaRoot: w.root, CommitTimeout: patience, DrainTimeout: patience, Look: 10 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(testWriter{w.t}, nil)),
		Transports: func(incarnation string) ([]rdma.Transport, func() error, error) {
			t := w.net.New(incarnation)
			return []rdma.Transport{t}, t.Close, nil
		},
	}
	if w.change != nil {
		w.change(&cfg)
	}
	l, err := Listen(w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := New(w.ctx, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	w.sidecar = s
	w.end = func() error {
		cancel()
		last, done := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer done()
		return errors.Join(<-served, s.Close(last), l.Close())
	}
}

// stop ends the sidecar as SIGTERM does.
func (w *world) stop() {
	w.t.Helper()
	if w.end == nil {
		return
	}
	if err := w.end(); err != nil {
		w.t.Errorf("the sidecar ends with %v", err)
	}
	w.end = nil
}

// testWriter logs into the test's output.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(bytes.TrimRight(b, "\n")))
	return len(b), nil
}

// ask sends a request and reads the answer into out. The code of a failure is returned, "" of a success.
func (w *world) ask(method, path string, body, out any) Code {
	w.t.Helper()
	var b bytes.Buffer
	if raw, ok := body.(string); ok {
		b.WriteString(raw)
	} else if err := json.NewEncoder(&b).Encode(body); err != nil {
		w.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(w.ctx, method, "http://sidecar"+path, &b)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			w.t.Fatal(err)
		}
		return ""
	}
	var failed struct{ Error Error }
	if err := json.NewDecoder(resp.Body).Decode(&failed); err != nil || failed.Error.Code == "" {
		w.t.Fatalf("%s %s: status %s without a code, %v", method, path, resp.Status, err)
	}
	if statuses[failed.Error.Code] != resp.StatusCode {
		w.t.Errorf("code %s came with status %d", failed.Error.Code, resp.StatusCode)
	}
	w.t.Logf("%s %s: %s: %s %v", method, path, failed.Error.Code, failed.Error.Message, failed.Error.Holders)
	return failed.Error.Code
}

// asks is ask that succeeds.
func (w *world) asks(method, path string, body, out any) {
	w.t.Helper()
	if code := w.ask(method, path, body, out); code != "" {
		w.t.Fatalf("%s %s was refused: %s", method, path, code)
	}
}

// trainer is a client of one rank.
type trainer struct {
	w       *world
	rank    int
	session string
	answer  AttachAnswer
	slots   [][]byte // mapped
}

// request is what a rank of world holds of two tensors: rows of one, all of the other.
func request(rank, world int, session string) AttachRequest {
	rows := int64(64 / world)
	return AttachRequest{Model: "m", World: world, Job: "job", Session: session, Entries: []Entry{
		{Name: "up", DType: "bfloat16", Shape: []int64{64, 48}, Box: [][2]int64{{int64(rank) * rows, int64(rank+1) * rows}, {0, 48}}},
		{Name: "norm", DType: "F32", Shape: []int64{37}, Box: [][2]int64{{0, 37}}},
	}}
}

func (w *world) attach(rank, world int, session string) *trainer {
	w.t.Helper()
	return w.attachAs(rank, request(rank, world, session))
}

func (w *world) attachAs(rank int, req AttachRequest) *trainer {
	w.t.Helper()
	var answer AttachAnswer
	w.asks("PUT", path(rank, ""), req, &answer)
	return w.attachMapped(rank, req.Session, &answer)
}

// attachMapped maps what an attach has given.
func (w *world) attachMapped(rank int, session string, answer *AttachAnswer) *trainer {
	w.t.Helper()
	tr := &trainer{w: w, rank: rank, session: session, answer: *answer}
	for _, p := range tr.answer.Slots {
		m, err := rdma.MapFile(p, rdma.MapOptions{Writable: true})
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = m.Close() })
		tr.slots = append(tr.slots, m.Bytes())
	}
	return tr
}

func path(rank int, verb string) string {
	p := "/v1/arenas/" + string(rune('0'+rank))
	if verb != "" {
		p += "/" + verb
	}
	return p
}

func (tr *trainer) request(version uint64, slot int) VersionRequest {
	return VersionRequest{Session: tr.session, Generation: tr.answer.Generation, Version: version, Slot: slot, WaitMS: patience.Milliseconds()}
}

// begin is given a slot.
func (tr *trainer) begin(version uint64) VersionAnswer {
	tr.w.t.Helper()
	var a VersionAnswer
	tr.w.asks("POST", path(tr.rank, "begin"), tr.request(version, 0), &a)
	return a
}

// fill writes bytes that tell the version.
func (tr *trainer) fill(slot int, version uint64) {
	for i := range tr.slots[slot] {
		tr.slots[slot][i] = byte(version)*31 + byte(i)&0x1f
	}
}

// publish does a whole step.
func (tr *trainer) publish(version uint64) VersionAnswer {
	tr.w.t.Helper()
	a := tr.begin(version)
	tr.fill(a.Slot, version)
	var out VersionAnswer
	tr.w.asks("POST", path(tr.rank, "publish"), tr.request(version, a.Slot), &out)
	return out
}

// committed waits until a version is announced.
func (w *world) committed(version uint64) messages.Key {
	w.t.Helper()
	key, found, err := w.control.Newest(w.ctx)
	if err != nil || !found || key.Version != version {
		w.t.Fatalf("newest version is %v (found %t, error %v), expected %d", key, found, err, version)
	}
	return key
}
