package refit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// flatCycles is how many cycles must leave the process as it was. Each way in which a cycle can end comes up in turn.
const flatCycles = 200

// flatEnds are the ways in which a cycle can end that leave the process alive.
var flatEnds = []struct {
	name    string
	at      string // point at which it is made to end; "": nothing is done to it
	strike  func(*flatWorld)
	apply   bool
	outcome tracing.Outcome
}{
	{"applied", "", nil, true, tracing.OutcomeApplied},
	{"released", "", nil, false, tracing.OutcomeReleased},
	{"the caller gives up", midRead, func(f *flatWorld) { f.giveUp() }, true, tracing.OutcomeFailed},
	{"the source dies", "connecting", func(f *flatWorld) { f.reset.Store(true) }, true, tracing.OutcomeFailed},
	{"the engine refuses", inInstaller, func(f *flatWorld) { f.refuse = true }, true, tracing.OutcomeFailed},
	{"a defect in stage", "planned", func(*flatWorld) { panic("defect") }, true, tracing.OutcomeAbandoned},
	{"a defect in apply", inInstaller, func(*flatWorld) { panic("defect") }, true, tracing.OutcomeAbandoned},
}

// flatWorld is a world whose receiver can be made to fail once.
type flatWorld struct {
	*world
	troubles
	refuse bool
	giveUp context.CancelFunc
}

// footprint is what a process must not gather.
type footprint struct {
	goroutines, files, mappings, arenas int
	staging                             int64 // bytes of both rings
	anonymous, shared                   int64 // resident bytes
}

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d mappings, %d entries in the arena folder, %d bytes of staging, %d resident anonymous, %d shared",
		f.goroutines, f.files, f.mappings, f.arenas, f.staging, f.anonymous, f.shared)
}

// TestManyCyclesOfEveryEndLeaveTheProcessFlat runs alone: it counts what the whole process holds.
func TestManyCyclesOfEveryEndLeaveTheProcessFlat(t *testing.T) {
	f := &flatWorld{world: newWorld(t, worldOptions{ranks: 2})}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	f.ctx = ctx
	r, trap, lines := f.trapped(func(c *ReceiverConfig) {
		c.Transports[0] = &troubled{c.Transports[0], &f.troubles}
		c.Installer = InstallerFunc(func(context.Context, Installation) (Report, error) {
			if f.refuse {
				f.refuse = false
				return Report{}, errors.New("not now")
			}
			return Report{}, nil
		})
	})
	var before footprint
	serves := uint64(0)
	for v := uint64(1); v <= flatCycles; v++ {
		end := flatEnds[int(v)%len(flatEnds)]
		key := f.publish(v)
		if end.at != "" {
			trap.set(pointNamed(end.at), func() { end.strike(f) })
		}
		f.cycle(r, key, end.apply)
		if end.outcome == tracing.OutcomeApplied {
			serves = v
		}
		if end.at != "" && !trap.sprung() {
			t.Fatalf("version %d, %s: the point was not reached", v, end.name)
		}
		f.reset.Store(false)
		f.unread(key)
		lines.once(t, v, end.outcome)
		if v == 3*uint64(len(flatEnds)) { // by now everything that is made once has been made
			before = f.footprint(r)
		}
	}
	if serves != 0 {
		f.serves(r, serves)
	}
	f.flat(r, before)
}

// flat waits for what ends in the background, such as connections that were aborted, and compares.
func (f *flatWorld) flat(r *Receiver, before footprint) {
	f.t.Helper()
	var now footprint
	f.eventually("goroutines and descriptors as before", func() bool {
		now = f.footprint(r)
		return now.goroutines <= before.goroutines && now.files <= before.files
	})
	if now.mappings > before.mappings || now.arenas > before.arenas || now.staging > before.staging || r.staging.quarantined() > 0 {
		f.t.Errorf("after %d cycles: %s\nbefore: %s", flatCycles, now, before)
	}
	const slack = 48 << 20 // the collector keeps some; a leak of one batch or arena each would be caught by the mappings
	if now.anonymous > before.anonymous+slack || now.shared > before.shared+1<<20 {
		f.t.Errorf("memory after %d cycles: %s\nbefore: %s", flatCycles, now, before)
	}
}

// cycle runs one cycle as a careful caller does.
func (f *flatWorld) cycle(r *Receiver, key messages.Key, apply bool) {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	f.giveUp = cancel
	defer func() { _ = recover() }()
	s, err := r.Stage(ctx, key)
	if err != nil {
		return
	}
	defer r.Release(s)
	if apply {
		_ = r.Apply(ctx, s) // the record tells
	}
}

// unread waits until no lease on a version is left.
func (f *flatWorld) unread(key messages.Key) {
	f.t.Helper()
	f.eventually("no lease is left", func() bool {
		holders, err := f.control.Holders(f.ctx, key)
		return err == nil && len(holders) == 0
	})
}

func (f *flatWorld) footprint(r *Receiver) footprint {
	f.t.Helper()
	runtime.GC()
	entries, err := os.ReadDir(r.ArenaRoot())
	if err != nil {
		f.t.Fatal(err)
	}
	p := footprint{goroutines: runtime.NumGoroutine(), files: descriptors(f.t), arenas: len(entries)}
	for _, ring := range []*ring{r.staging, r.edges} {
		p.staging += ring.bytes()
	}
	p.mappings = strings.Count(readProc(f.t, "maps"), filepath.Base(r.ArenaRoot()))
	p.anonymous, p.shared = resident(f.t, "RssAnon"), resident(f.t, "RssShmem")
	return p
}

// bytes is the memory that a ring has mapped, what is quarantined included.
func (r *ring) bytes() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.all {
		n += m.Len()
	}
	for _, m := range r.lost {
		n += m.Len()
	}
	return n
}

func readProc(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// resident is a figure of /proc/self/status, in bytes.
func resident(t testing.TB, name string) int64 {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(readProc(t, "status")))
	for lines.Scan() {
		var kib int64
		if _, err := fmt.Sscanf(lines.Text(), name+": %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Fatalf("no %s in /proc/self/status", name)
	return 0
}
