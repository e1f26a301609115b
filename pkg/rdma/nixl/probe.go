package nixl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/nixlsys"
)

// The library does not survive all metadata that an endpoint may announce: of damaged bytes one or two in a hundred end its
// process, at loading or at the first read. A checksum keeps damage away, but whoever announces chooses that too. So what is
// met for the first time is tried out by a child process, which loads it, reads two bytes of each region and ends.

// ProbeArg is the argument by which a program that sets Config.Probe knows itself as the child, and calls ProbeMain.
const ProbeArg = "nixl-probe"

const (
	probeTime    = 20 * time.Second // for a child from its start to its end
	probeRead    = 5 * time.Second  // for its reads
	probeRegions = 64               // that are read from; others are like them
	maxProbe     = 4 << 20          // bytes of a question
	maxProbed    = 4096             // verdicts that are remembered
	maxAnswer    = 4 << 10          // bytes of a child's words
)

// Exit codes of a child. What the library does to it ends it by a signal, or by Go's runtime that was told of one.
const (
	probeFine    = 0
	probeCrashed = 2 // of Go's runtime
	probeRefuse  = 3 // the library says no to the metadata
	probeBroken  = 4 // the child itself could not do its work
)

// question is what a child is asked, as JSON on its standard input.
type question struct {
	Library, Plugin string
	Params, Env     map[string]string
	Name            string
	Metadata        []byte
	Regions         []rdma.RemoteRegion
}

// probes remembers what children said, by the digest of what they were asked.
type probes struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]*probed
}

// probed is one verdict; its mutex is held while a child is asked, so that nobody asks the same at the same time.
type probed struct {
	mu   sync.Mutex
	done bool
	err  error
}

// of finds the verdict on a question. Beyond the limit all are forgotten: to ask again costs a child's time.
func (ps *probes) of(b []byte) *probed {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	sum := sha256.Sum256(b)
	if p := ps.known[sum]; p != nil {
		return p
	}
	if ps.known == nil || len(ps.known) >= maxProbed {
		ps.known = map[[sha256.Size]byte]*probed{}
	}
	p := &probed{}
	ps.known[sum] = p
	return p
}

// probe has metadata tried out by a child, unless one has done so before. Only what a child found out is remembered: that
// it could not be started, or was not done in time, says nothing of the metadata.
func (t *Transport) probe(ctx context.Context, r *rdma.Remote, a *access) error {
	if len(t.cfg.Probe) == 0 {
		return nil
	}
	b, err := json.Marshal(question{
		Library: t.lib.Path, Plugin: t.cfg.Plugin, Params: t.cfg.Params, Env: t.cfg.Env, Name: a.name, Metadata: a.md, Regions: r.Regions,
	})
	if err != nil {
		return fail("probe", r.Rank, rdma.ErrRefused, err)
	}
	p := t.probes.of(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done {
		p.done, p.err = askChild(ctx, t.cfg.Probe, b, r.Rank)
	}
	return p.err
}

// askChild runs a child. known is unset where the answer is about the child.
func askChild(ctx context.Context, command []string, question []byte, rank int) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	child := exec.CommandContext(ctx, command[0], command[1:]...)
	var said tail
	child.Stdin, child.Stdout = bytes.NewReader(question), &said
	err = child.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, fail("probe", rank, rdma.ErrTimeout, fmt.Errorf("try the metadata out in a child process: %w", context.Cause(ctx)))
	case errors.As(err, &exit) && exit.ExitCode() == probeRefuse:
		return false, fail("probe", rank, rdma.ErrUnreachable, fmt.Errorf("a child process that tried the metadata out: %s", said.text()))
	case errors.As(err, &exit) && (exit.ExitCode() < 0 || exit.ExitCode() == probeCrashed):
		return true, fail("probe", rank, rdma.ErrRefused,
			fmt.Errorf("the library does not survive the endpoint's metadata: a child process that tried it out ended by %w", err))
	}
	return false, fail("probe", rank, rdma.ErrUnavailable, fmt.Errorf("try the metadata out in a child process: %w: %s", err, said.text()))
}

// tail keeps the first bytes of what a child says.
type tail struct{ b []byte }

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b[:min(len(b), maxAnswer-len(t.b))]...)
	return len(b), nil
}

func (t *tail) text() string { return strings.TrimSpace(string(t.b)) }

// ProbeMain is the whole of a child: it answers the question on in and gives the exit code. What the metadata does to the
// library ends this process and no other.
func ProbeMain(in io.Reader, out io.Writer) int {
	err := answer(in)
	if err == nil {
		return probeFine
	}
	_, _ = fmt.Fprintln(out, err)
	if errors.Is(err, errProbeBroken) {
		return probeBroken
	}
	return probeRefuse
}

var errProbeBroken = errors.New("the probe can't work")

func answer(in io.Reader) error {
	var q question
	if err := json.NewDecoder(io.LimitReader(in, maxProbe)).Decode(&q); err != nil {
		return fmt.Errorf("%w: decode the question: %w", errProbeBroken, err)
	}
	cfg := Config{Library: q.Library, Plugin: q.Plugin, Params: q.Params, Env: maps.Clone(q.Env)}
	l, err := Open(cfg)
	if err != nil {
		return fmt.Errorf("%w: %w", errProbeBroken, err)
	}
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("%w: %w", errProbeBroken, err)
	}
	m, err := rdma.Alloc(2*probeRegions, rdma.AllocOptions{Backing: rdma.Anonymous})
	if err != nil {
		return fmt.Errorf("%w: %w", errProbeBroken, err)
	}
	a, err := newAgent(l, &cfg, readingAgent, "drydock-probe-"+rdma.NewIncarnation())
	if err == nil {
		err = a.use(m, true)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errProbeBroken, err)
	}
	// From here on it is about the metadata. Nothing is tidied up: the process ends.
	if err := a.load(q.Name, q.Metadata); err != nil {
		return fmt.Errorf("load metadata: %w", err)
	}
	return a.tryRegions(m, &q)
}

// tryRegions reads the first and the last byte of each region of host memory into m.
func (a *agent) tryRegions(m *rdma.Memory, q *question) error {
	c := chunk{memType: nixlsys.DRAM}
	for _, g := range q.Regions[:min(len(q.Regions), probeRegions)] {
		if g.Device != "" || g.Nbytes < 1 {
			continue // the child has no device to read into
		}
		for _, at := range []uint64{g.Base, g.Base + uint64(g.Nbytes) - 1} {
			c.remote = append(c.remote, nixlsys.Desc{Addr: at, Nbytes: 1})
			c.local = append(c.local, nixlsys.Desc{Addr: m.Addr() + uint64(len(c.local)), Nbytes: 1})
		}
	}
	if len(c.remote) == 0 {
		return nil
	}
	h, err := a.newRead(nixlsys.DRAM, &c, q.Name)
	if err != nil {
		return err
	}
	switch st := a.postAndWait(h, probeRead); st {
	case nixlsys.Success:
		return nil
	case nixlsys.InProgress:
		return fmt.Errorf("a read of single bytes is in progress after %v", probeRead)
	default:
		return fmt.Errorf("read single bytes: %w", st)
	}
}
