package sidecar

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestTrainerThatDied attaches as another process and ends it: its version stays readable for the grace time, and then goes.
func TestTrainerThatDied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Grace = 300 * time.Millisecond })
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	req := request(0, 1, "a")
	answer, err := w.sidecar.attach(w.ctx, 0, child.Process.Pid, &req, false)
	if err != nil {
		t.Fatal(err)
	}
	tr := w.attachMapped(0, "a", answer)
	tr.publish(1)
	if code := w.ask("PUT", path(0, ""), request(0, 1, "b"), nil); code != RankTaken {
		t.Errorf("a rank was taken from a living process: %q", code)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	w.committed(1)
	deadline := time.Now().Add(patience)
	for _, err = os.Stat(filepath.Dir(answer.Slots[0])); err == nil; _, err = os.Stat(filepath.Dir(answer.Slots[0])) {
		if time.Now().After(deadline) {
			t.Fatal("the arena of a dead trainer stays")
		}
		var s Status
		w.asks("GET", "/v1/status", "", &s)
	}
	if _, found, err := w.control.Newest(w.ctx); found || err != nil {
		t.Errorf("its version stands without its bytes (error %v)", err)
	}
	w.attach(0, 1, "b").publish(2)
}

// TestOrphaned goes through what can be known of a process.
func TestOrphaned(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		o    owner
		want bool
	}{
		"alive":              {owner{pid: 1, seen: now.Add(-time.Hour)}, false},
		"just gone":          {owner{pid: 1, gone: now.Add(-time.Second)}, false},
		"gone for long":      {owner{pid: 1, gone: now.Add(-time.Minute)}, true},
		"not visible":        {owner{seen: now.Add(-time.Minute)}, false},
		"not heard for long": {owner{seen: now.Add(-time.Hour)}, true},
	} {
		if got := c.o.orphaned(now, 10*time.Second, 10*time.Minute); got != c.want {
			t.Errorf("%s: orphaned %t", name, got)
		}
	}
	o := newOwner(os.Getpid(), now)
	if o.look(now); !o.alive() {
		t.Error("this process is said to be gone")
	}
	o.start++ // another process has its number now
	if o.look(now); o.alive() {
		t.Error("another process with the same number is taken for this one")
	}
	if o := newOwner(1<<30, now); o.pid != 0 {
		t.Errorf("a process that doesn't exist: %+v", o)
	}
}
