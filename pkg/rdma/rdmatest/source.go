package rdmatest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// childEnv marks a process that StartSource started.
const childEnv = "DRYDOCK_RDMATEST_SOURCE"

// SourceSpec is what a child process serves.
type SourceSpec struct {
	Kind    string // which of the serve functions given to Child
	Regions []int64
	Seed    uint64 // region i holds Fill of Seed+i
	Backing rdma.Backing
	Listen  string // for transports that listen; "" for any port
}

// Serve makes a serving transport in a child process.
type Serve func(SourceSpec) (tr rdma.Transport, incarnation string, err error)

// announcement is the child's first line.
type announcement struct {
	Incarnation string
	Access      rdma.Access
	Regions     []rdma.RemoteRegion
}

// Child belongs first in TestMain. In a process that StartSource started it serves and never returns; in others it
// does nothing.
func Child(kinds map[string]Serve) {
	raw := os.Getenv(childEnv)
	if raw == "" {
		return
	}
	var spec SourceSpec
	err := json.Unmarshal([]byte(raw), &spec)
	if err == nil {
		err = serve(kinds[spec.Kind], spec)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "source:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve announces itself on stdout and obeys lines on stdin until that ends, which it does when the parent dies too.
func serve(start Serve, spec SourceSpec) error {
	tr, incarnation, err := start(spec)
	if err != nil {
		return err
	}
	a := announcement{Incarnation: incarnation}
	var regions []rdma.Region
	for i, n := range spec.Regions {
		m, err := rdma.Alloc(n, rdma.AllocOptions{Backing: spec.Backing})
		if err != nil {
			return err
		}
		Fill(m.Bytes(), spec.Seed+uint64(i))
		r, err := tr.Register(m)
		if err != nil {
			return err
		}
		regions = append(regions, r)
		a.Regions = append(a.Regions, r.Describe())
	}
	if a.Access, err = tr.Access(); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		return err
	}
	return errors.Join(obey(regions), tr.Close())
}

func obey(regions []rdma.Region) error {
	for sc := bufio.NewScanner(os.Stdin); sc.Scan(); {
		var i int
		if _, err := fmt.Sscanf(sc.Text(), "withdraw %d", &i); err != nil {
			return fmt.Errorf("obey %q: %w", sc.Text(), err)
		}
		if err := regions[i].Close(); err != nil {
			return err
		}
		fmt.Println("done")
	}
	return nil
}

// Source is a serving child process.
type Source struct {
	Spec   SourceSpec
	Remote rdma.Remote

	bytes map[int][]byte // what regions hold, once somebody asked
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	ended sync.Once
}

// StartSource runs this test binary again as a source. It ends with the test at the latest.
func StartSource(t testing.TB, spec SourceSpec) *Source {
	t.Helper()
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	s := &Source{Spec: spec, bytes: map[int][]byte{}, cmd: exec.Command(os.Args[0])}
	s.cmd.Env = append(os.Environ(), childEnv+"="+string(raw))
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	s.out = bufio.NewReader(out)
	s.Remote = s.hear(t)
	return s
}

func (s *Source) hear(t testing.TB) rdma.Remote {
	t.Helper()
	line := s.line(t)
	var a announcement
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		t.Fatalf("source says %q: %v", line, err)
	}
	host, err := rdma.HostID()
	if err != nil {
		t.Fatal(err)
	}
	return rdma.Remote{Rank: 5, Host: host, Incarnation: a.Incarnation, Regions: a.Regions, Access: a.Access}
}

func (s *Source) line(t testing.TB) string {
	t.Helper()
	timer := time.AfterFunc(Deadline, s.Kill)
	defer timer.Stop()
	line, err := s.out.ReadString('\n')
	if err != nil {
		t.Fatalf("source said nothing: %v", err)
	}
	return strings.TrimSpace(line)
}

// Kill ends the process with SIGKILL and waits for its end. Idempotent.
func (s *Source) Kill() {
	s.ended.Do(func() {
		_ = s.cmd.Process.Kill()
		_ = s.stdin.Close()
		_ = s.cmd.Wait() // its status is the signal
	})
}

// Freeze stops the process, Thaw lets it go on.
func (s *Source) Freeze() { s.signal(syscall.SIGSTOP, "T") }

// Thaw lets a frozen process go on.
func (s *Source) Thaw() { s.signal(syscall.SIGCONT, "RSD") }

// signal waits until the kernel shows the process in one of the states.
func (s *Source) signal(sig syscall.Signal, states string) {
	_ = s.cmd.Process.Signal(sig)
	Eventually(func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		_, rest, ok := strings.Cut(string(b), ") ")
		return err != nil || ok && strings.ContainsAny(rest[:1], states)
	})
}

// Withdraw closes a region in the process.
func (s *Source) Withdraw(t testing.TB, region int) {
	t.Helper()
	if _, err := fmt.Fprintf(s.stdin, "withdraw %d\n", region); err != nil {
		t.Fatal(err)
	}
	if got := s.line(t); got != "done" {
		t.Fatalf("source says %q", got)
	}
}

// Bytes is what a region of the source holds.
func (s *Source) Bytes(region int) []byte {
	if b, ok := s.bytes[region]; ok {
		return b
	}
	b := make([]byte, s.Spec.Regions[region])
	Fill(b, s.Spec.Seed+uint64(region))
	s.bytes[region] = b
	return b
}
