package messages_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// Publishers and receivers are processes here: this test binary, started again with
// -life. A process halts at one message that it sends, either before the server gets it
// or when its answer has come and nobody has seen it, says so, and is killed with SIGKILL.
// A step is a message, so that there is no state between two steps that the servers could
// tell apart.

var lifeFlag = flag.String("life", "", "for the tests' own use: what a child process does, in JSON")

// life is what a child process is told.
type life struct {
	Kind     string // "publisher" or "receiver"
	URL      string
	Model    string
	Replicas int
	Name     string // of the receiver; the publisher's incarnation
	First    uint64 // publisher: versions First to Last, the one before retired each time
	Last     uint64
	Key      messages.Key // receiver: the version that it reads
	Halt     int          // at which message, from 1; 0: at none
	Answered bool         // halt when its answer has come; else before it is sent
}

func (l *life) config() messages.Config {
	return messages.Config{Model: l.Model, Memory: true, Replicas: l.Replicas, LeaseTTL: killedTTL}
}

// killedTTL is the life of the leases that killed receivers leave behind.
const killedTTL = 3 * time.Second

// live is the main function of a child process.
func live(told string) int {
	var l life
	err := json.Unmarshal([]byte(told), &l)
	if err == nil {
		err = l.run()
	}
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	return 0
}

func (l *life) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	nc, err := nats.Connect(l.URL, nats.SetCustomDialer(&halter{life: l}), nats.MaxReconnects(-1), nats.Timeout(20*time.Second))
	if err != nil {
		return err
	}
	defer nc.Close()
	c, err := messages.Open(ctx, nc, l.config())
	if err != nil {
		return err
	}
	defer c.Close()
	if l.Kind == "receiver" {
		return l.receive(ctx, c)
	}
	return l.publish(ctx, c)
}

// publish is a rank's life: it begins anew what an earlier life has left unfinished,
// and ends what that life has published and it can't take over.
func (l *life) publish(ctx context.Context, c *messages.Control) error {
	run, err := c.TakeRun(ctx, "job", 1)
	if err != nil {
		return err
	}
	for v := l.First; v <= l.Last; v++ {
		p := publication(messages.Key{Run: run.Run, Version: v}, 0, 1)
		p.Endpoint.Incarnation = l.Name
		err := c.Publish(ctx, p)
		if err == nil {
			_, err = c.Commit(ctx, p.Key, 1)
		}
		if errors.Is(err, messages.ErrConflict) {
			// The dead life's table is there: its version stands, or never will.
			if err = c.Abandon(ctx, p.Key, "its publisher died"); errors.Is(err, messages.ErrConflict) {
				err = nil
			}
		}
		if err != nil && !errors.Is(err, messages.ErrRetired) && !errors.Is(err, messages.ErrAbandoned) {
			return fmt.Errorf("version %s: %w", p.Key, err)
		}
		if v == l.First {
			continue
		}
		if err := c.Retire(ctx, messages.Key{Run: run.Run, Version: v - 1}, 0); err != nil {
			return err
		}
	}
	return nil
}

// receive is a receiver's life with one version.
func (l *life) receive(ctx context.Context, c *messages.Control) error {
	lease, err := c.AcquireLease(ctx, l.Key, l.Name)
	if err != nil {
		return err
	}
	v, err := c.Assemble(ctx, l.Key)
	if err != nil {
		return err
	}
	if got := v.Ranks[0].Tiles.Digests[0]; got != l.Key.Version<<8 {
		return fmt.Errorf("version %s has the digest %x", l.Key, got)
	}
	if err := lease.Confirm(ctx); err != nil {
		return err
	}
	if err := c.PutStatus(ctx, l.Name, messages.Status{Role: messages.RoleReceiver, Serving: l.Key}); err != nil {
		return err
	}
	return lease.Release(ctx)
}

// halter dials connections that halt at one message for ever.
type halter struct {
	life *life
	sent int // messages; written by the connection's flusher and writers, which take turns
}

// Dial implements nats.CustomDialer.
func (h *halter) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &halting{Conn: c, h: h}, nil
}

// halting is a connection of a process that is to die.
type halting struct {
	net.Conn
	h        *halter
	unsent   []byte      // the beginning of a message
	expected atomic.Bool // the message was sent: the next answer is its own, or one to a message just before
}

// Write passes whole operations on, and counts those that publish.
func (c *halting) Write(b []byte) (int, error) {
	c.unsent = append(c.unsent, b...)
	for {
		n, subject := operation(c.unsent)
		if n == 0 {
			return len(b), nil
		}
		op := c.unsent[:n]
		if subject != "" {
			if c.h.sent++; c.h.sent == c.h.life.Halt && !c.h.life.Answered {
				halt(c.h.sent, subject)
			}
			if c.h.sent == c.h.life.Halt {
				c.expected.Store(true)
			}
		}
		if _, err := c.Conn.Write(op); err != nil {
			return 0, err
		}
		c.unsent = c.unsent[n:]
	}
}

// Read keeps the answer to the message at which the process halts.
func (c *halting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.expected.Load() && bytes.Contains(b[:n], []byte("MSG ")) {
		halt(c.h.sent, "the answer")
	}
	return n, err
}

// halt tells where the process stands, and waits for its death.
func halt(step int, at string) {
	fmt.Println("halted", step, at)
	select {}
}

// operation measures the first operation of the client's protocol in b; 0 when it is not
// whole. Of one that publishes it returns the subject.
func operation(b []byte) (nbytes int, subject string) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 0 {
		return 0, ""
	}
	f := strings.Fields(string(b[:end]))
	if len(f) < 3 || f[0] != "PUB" && f[0] != "HPUB" {
		return end + 2, ""
	}
	payload, err := strconv.Atoi(f[len(f)-1])
	if whole := end + 2 + payload + 2; err == nil && len(b) >= whole {
		return whole, f[1]
	}
	return 0, ""
}

// begin starts a child process; its lines come over the channel, which ends with it.
func (l life) begin(t *testing.T) (cmd *exec.Cmd, lines <-chan string) {
	t.Helper()
	told, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), os.Args[0], "-life", string(told))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all := make(chan string, 100)
	go func(out io.Reader) {
		defer close(all)
		for s := bufio.NewScanner(out); s.Scan(); {
			all <- s.Text()
		}
	}(out)
	return cmd, all
}

// live runs a child process to its death at a step, or to its end. It says whether it
// lived, and else where it halted.
func (l life) live(t *testing.T) (lived bool, at string) {
	t.Helper()
	cmd, lines := l.begin(t)
	for line := range lines {
		if !strings.HasPrefix(line, "halted ") {
			t.Errorf("%s, halting at %d: %s", l.Kind, l.Halt, line)
			continue
		}
		at = line
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	err := cmd.Wait()
	if (err == nil) != (at == "") {
		t.Errorf("%s, halting at %d: %q and %v", l.Kind, l.Halt, at, err)
	}
	return at == "", at
}

// killedServers are what children of killed processes' tests are run against.
func killedServers(t *testing.T, test func(t *testing.T, url string, replicas int)) {
	t.Helper()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		test(t, natstest.Start(t, natsd.Options{}).URL(), 1)
	})
	t.Run("three servers", func(t *testing.T) {
		if testing.Short() {
			t.Skip("builds and runs three server processes")
		}
		t.Parallel()
		test(t, natstest.StartCluster(t).URL(), 3)
	})
}

// openAt opens a model of a child's configuration, and makes it first.
func openAt(t *testing.T, l *life) *messages.Control {
	t.Helper()
	nc, err := messages.Dial(l.URL, messages.DialConfig{Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx := natstest.Context(t, 2*time.Minute)
	if err := messages.Init(ctx, nc, l.config()); err != nil {
		t.Fatal(err)
	}
	c, err := messages.Open(ctx, nc, l.config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // always nil
	return c
}

// TestKilledPublisher: a rank is killed at each message that it sends from taking its run
// to retiring a version, and a new process goes on. No version is torn, none that was
// committed is lost, the run is the same, and nothing of older versions stays behind.
func TestKilledPublisher(t *testing.T) {
	t.Parallel()
	killedServers(t, func(t *testing.T, url string, replicas int) {
		moments := []bool{false, true}
		if replicas > 1 {
			moments = moments[1:] // what was stored and not seen to be: the rest is the client's, whose servers don't matter
		}
		for _, answered := range moments {
			for step := 1; ; step++ {
				if step > 100 {
					t.Fatal("a life has more than 100 steps")
				}
				l := life{
					Kind: "publisher", URL: url, Model: fmt.Sprintf("killed-%v-%d", answered, step), Replicas: replicas,
					Name: "life-1", First: 1, Last: 2, Halt: step, Answered: answered,
				}
				if lived := killPublisher(t, l); lived {
					t.Logf("answered %v: a publisher's life has %d steps", answered, step-1)
					break
				}
			}
		}
	})
}

// killPublisher is one life, its death, and its heir.
func killPublisher(t *testing.T, l life) (lived bool) {
	t.Helper()
	c := openAt(t, &l)
	ctx := natstest.Context(t, time.Minute)
	lived, at := l.live(t)
	before, taken, err := c.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	committed := checkNewest(ctx, t, c, at)
	heir := l
	heir.Name, heir.Last, heir.Halt = "life-2", 4, 0
	heir.live(t)
	after, _, err := c.Run(ctx)
	if err != nil || taken && after.Nonce != before.Nonce {
		t.Errorf("%s: the next life has run %d, the last had %d: %v", at, after.Run, before.Run, err)
	}
	last := messages.Key{Run: after.Run, Version: 4}
	if newest := checkNewest(ctx, t, c, at); newest != last || newest.Less(committed) {
		t.Errorf("%s: %s was committed, the next life ends with %s", at, committed, newest)
	}
	list, err := c.Versions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range list {
		if v.Manifest != nil && v.Key != last {
			t.Errorf("%s: version %s leaks: it is committed, and nobody holds it", at, v.Key)
		}
		if why, err := c.Why(ctx, v.Key); err != nil || v.Key != last && len(why.Published) > 0 {
			t.Errorf("%s: version %s leaks: tables of %v, %v", at, v.Key, why.Published, err)
		}
	}
	return lived
}

// checkNewest: what receivers should serve can be assembled, and is whole.
func checkNewest(ctx context.Context, t *testing.T, c *messages.Control, at string) messages.Key {
	t.Helper()
	key, ok, err := c.Newest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return messages.Key{}
	}
	if v, err := c.Assemble(ctx, key); err != nil || len(v.Ranks) != 1 || v.Ranks[0].Tiles.Digests[0] != key.Version<<8 {
		t.Errorf("%s: version %s is torn: %v", at, key, err)
	}
	return key
}

// TestKilledReceiver: a receiver is killed at each message that it sends from its lease to
// its release. The publisher gets its buffer back within the lease's life, and a new
// process by the same name reads the next version meanwhile.
func TestKilledReceiver(t *testing.T) {
	t.Parallel()
	killedServers(t, func(t *testing.T, url string, replicas int) {
		c := openAt(t, &life{URL: url, Model: "killed", Replicas: replicas})
		run := takeRun(t, c, "job", 1).Run
		var version atomic.Uint64
		version.Store(1)
		for _, answered := range []bool{false, true} {
			var work sync.WaitGroup
			limit := make(chan struct{}, 4)
			steps := 0
			for lived := false; !lived; steps++ {
				if steps > 60 {
					t.Fatal("a life has more than 60 steps")
				}
				l := life{
					Kind: "receiver", URL: url, Model: "killed", Replicas: replicas, Name: fmt.Sprintf("rx-%v-%d", answered, steps),
					Key: messages.Key{Run: run, Version: version.Add(2)}, Halt: steps + 1, Answered: answered,
				}
				publishAll(t, c, l.Key, 1)
				limit <- struct{}{}
				var at string
				lived, at = l.live(t)
				work.Go(func() {
					defer func() { <-limit }()
					inheritRead(t, c, l, at)
				})
			}
			work.Wait()
			t.Logf("answered %v: a receiver's life has %d steps", answered, steps-1)
		}
	})
}

// inheritRead frees a dead receiver's version, while its next life reads another one.
func inheritRead(t *testing.T, c *messages.Control, l life, at string) {
	t.Helper()
	freed := make(chan time.Duration, 1)
	go func() {
		began := time.Now()
		if err := c.Retire(natstest.Context(t, time.Minute), l.Key, 0); err != nil {
			t.Errorf("%s: %v", at, err)
		}
		freed <- time.Since(began)
	}()
	heir := l
	heir.Key.Version++
	heir.Halt = 0
	publishAll(t, c, heir.Key, 1)
	heir.live(t)
	if took := <-freed; took > killedTTL+slack {
		t.Errorf("%s: the buffer was free after %v, a lease lives %v", at, took, killedTTL)
	}
	ctx := natstest.Context(t, 20*time.Second)
	if names, err := c.Holders(ctx, heir.Key); err != nil || len(names) > 0 {
		t.Errorf("%s: the next life leaves leases of %v behind, %v", at, names, err)
	}
	list, err := c.Statuses(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, s := range list {
		if s.Name == l.Name && s.Serving != heir.Key {
			t.Errorf("%s: the next life serves %s, want %s", at, s.Serving, heir.Key)
		}
	}
}
