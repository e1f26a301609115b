package nixl

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/nixlsys"
)

// Agents are of two kinds, because without its own threads or locks an agent hangs or crashes under several goroutines.
var (
	// servingAgent answers readers by itself: it has a progress thread. Without a delay that would spin on a core of its
	// own; with one it wakes for events at once and after a millisecond at the latest.
	servingAgent = nixlsys.AgentConfig{ProgressThread: true, Sync: 2, ProgressDelay: 1000}
	// readingAgent is driven by its poller, under the library's strict lock. A progress thread would spin beside the
	// poller for as long as a request is under way.
	readingAgent = nixlsys.AgentConfig{Sync: 1}
)

// agent is one agent of the library with one plug-in, and the memory registered with it.
type agent struct {
	sys     *nixlsys.Library
	name    string
	handle  nixlsys.Agent
	backend nixlsys.Backend
	options nixlsys.Options

	meeting sync.Mutex     // held while remote agents are loaded and forgotten
	remotes map[string]int // peers by the remote agent's name

	mu    sync.Mutex
	regs  map[*rdma.Memory]*registration
	peers int
	stuck int // calls that were left behind and haven't come back; may be -1 for a moment
}

type registration struct {
	uses int
	kept bool // stays when the last use ends
}

func newAgent(l *Library, cfg *Config, kind nixlsys.AgentConfig, name string) (*agent, error) {
	h, err := l.sys.NewAgent(name, kind)
	if err != nil {
		return nil, fmt.Errorf("make agent %s: %w", name, err)
	}
	a := &agent{sys: l.sys, name: name, handle: h, regs: map[*rdma.Memory]*registration{}, remotes: map[string]int{}}
	if a.backend, a.options, err = l.sys.NewBackend(h, cfg.Plugin, cfg.Params); err != nil {
		return nil, errors.Join(fmt.Errorf("start plug-in %s: %w", cfg.Plugin, err), a.close())
	}
	return a, nil
}

// close ends the agent. Nothing may be in flight on it.
func (a *agent) close() error {
	a.sys.FreeBackend(a.backend, a.options)
	if err := a.sys.DestroyAgent(a.handle); err != nil {
		return fmt.Errorf("end agent %s: %w", a.name, err)
	}
	return nil
}

// descOf describes a memory, or a part of one, to the library.
func descOf(m *rdma.Memory) (nixlsys.MemType, nixlsys.Desc, error) {
	t, dev, err := device(m.Device())
	return t, nixlsys.Desc{Addr: m.Addr(), Nbytes: uint64(m.Len()), Device: dev}, err
}

// device reads "" as host memory, and "cuda:1" as device memory of device 1.
func device(s string) (nixlsys.MemType, uint64, error) {
	if s == "" {
		return nixlsys.DRAM, 0, nil
	}
	_, num, _ := strings.Cut(s, ":")
	n, err := strconv.ParseUint(num, 10, 32)
	if err != nil {
		return 0, 0, fmt.Errorf("device %q: %w", s, err)
	}
	return nixlsys.VRAM, n, nil
}

// use registers m for one read or, with keep, until unkeep.
func (a *agent) use(m *rdma.Memory, keep bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.regs[m]
	if r == nil {
		t, d, err := descOf(m)
		if err != nil {
			return err
		}
		if err := a.sys.Register(a.handle, t, d, a.options); err != nil {
			return fmt.Errorf("register %d bytes with agent %s: %w", m.Len(), a.name, err)
		}
		r = &registration{}
		a.regs[m] = r
	}
	if keep {
		r.kept = true
	} else {
		r.uses++
	}
	return nil
}

// unuse ends one use; unkeep ends the keeping.
func (a *agent) unuse(m *rdma.Memory) error {
	return a.drop(m, func(r *registration) { r.uses-- })
}

func (a *agent) unkeep(m *rdma.Memory) error {
	return a.drop(m, func(r *registration) { r.kept = false })
}

func (a *agent) drop(m *rdma.Memory, edit func(*registration)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.regs[m]
	if r == nil {
		return nil
	}
	if edit(r); r.kept || r.uses > 0 {
		return nil
	}
	delete(a.regs, m)
	t, d, err := descOf(m)
	if err != nil {
		return err
	}
	if err := a.sys.Deregister(a.handle, t, d, a.options); err != nil {
		return fmt.Errorf("deregister %d bytes from agent %s: %w", m.Len(), a.name, err)
	}
	return nil
}

// load takes in a remote agent for one more peer. It may block, and then the agent's other loads with it.
func (a *agent) load(name string, md []byte) error {
	a.meeting.Lock()
	defer a.meeting.Unlock()
	if a.remotes[name] == 0 {
		got, err := a.sys.LoadRemote(a.handle, md)
		if err != nil {
			return err
		}
		if got != name {
			return fmt.Errorf("metadata is of agent %q, %q was announced", got, name)
		}
	}
	a.remotes[name]++
	return nil
}

// unload forgets a remote agent when its last peer goes.
func (a *agent) unload(name string) error {
	a.meeting.Lock()
	defer a.meeting.Unlock()
	if a.remotes[name]--; a.remotes[name] > 0 {
		return nil
	}
	delete(a.remotes, name)
	if err := a.sys.InvalidateRemote(a.handle, name); err != nil {
		return fmt.Errorf("forget agent %s: %w", name, err)
	}
	return nil
}

// newRead makes a request of a chunk. The library checks every run against registered memory, on both sides.
func (a *agent) newRead(local nixlsys.MemType, c *chunk, from string) (nixlsys.Request, error) {
	to, err := a.sys.NewXferList(local, c.local)
	if err != nil {
		return 0, fmt.Errorf("list %d local runs: %w", len(c.local), err)
	}
	defer a.sys.FreeXferList(to)
	src, err := a.sys.NewXferList(c.memType, c.remote)
	if err != nil {
		return 0, fmt.Errorf("list %d remote runs: %w", len(c.remote), err)
	}
	defer a.sys.FreeXferList(src)
	h, err := a.sys.NewRead(a.handle, to, src, from, a.options)
	if err != nil {
		return 0, fmt.Errorf("make a request of %d runs: %w", len(c.local), err)
	}
	return h, nil
}
