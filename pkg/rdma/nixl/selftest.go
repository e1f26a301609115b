package nixl

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/nixlsys"
)

// selfTestTime bounds the self-test's read.
const selfTestTime = 10 * time.Second

// SelfTest makes two agents and reads a page from one through the other: a library that opens may still find no
// plug-in, no transport, or no permission.
func (l *Library) SelfTest(cfg Config) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	const page = 4096
	m, err := rdma.Alloc(2*page, rdma.AllocOptions{Backing: rdma.Anonymous})
	if err != nil {
		return err
	}
	for i := range page {
		m.Bytes()[i] = byte(i*7 + i>>8)
	}
	ended, err := l.readSelf(&cfg, m)
	if !ended {
		return err // the library may still write: the page stays
	}
	if err == nil && !bytes.Equal(m.Bytes()[:page], m.Bytes()[page:]) {
		err = errors.New("the self-test's bytes arrived wrong")
	}
	return errors.Join(err, m.Close())
}

// readSelf reads the first half of m into the second. With ended unset the agents and m are left alive.
func (l *Library) readSelf(cfg *Config, m *rdma.Memory) (ended bool, err error) {
	id := rdma.NewIncarnation()
	var agents []*agent
	for _, kind := range []nixlsys.AgentConfig{servingAgent, readingAgent} {
		a, err := newAgent(l, cfg, kind, fmt.Sprintf("drydock-test-%s-%d", id, len(agents)))
		if err != nil {
			return true, errors.Join(err, closeAgents(agents))
		}
		agents = append(agents, a)
		if err := a.use(m, true); err != nil {
			return true, errors.Join(err, closeAgents(agents))
		}
	}
	ended, err = selfRead(agents[0], agents[1], m)
	if !ended {
		return false, err
	}
	return true, errors.Join(err, agents[0].unkeep(m), agents[1].unkeep(m), closeAgents(agents))
}

func closeAgents(agents []*agent) error {
	var errs []error
	for _, a := range agents {
		errs = append(errs, a.close())
	}
	return errors.Join(errs...)
}

func selfRead(source, reader *agent, m *rdma.Memory) (ended bool, err error) {
	md, err := source.sys.LocalMetadata(source.handle)
	if err != nil {
		return true, fmt.Errorf("describe the self-test's agent: %w", err)
	}
	if err := reader.load(source.name, md); err != nil {
		return true, fmt.Errorf("load the self-test's agent: %w", err)
	}
	half := uint64(m.Len() / 2)
	c := chunk{remote: []nixlsys.Desc{{Addr: m.Addr(), Nbytes: half}}, local: []nixlsys.Desc{{Addr: m.Addr() + half, Nbytes: half}}}
	h, err := reader.newRead(nixlsys.DRAM, &c, source.name)
	if err != nil {
		return true, err
	}
	switch st := reader.postAndWait(h, selfTestTime); st {
	case nixlsys.Success:
	case nixlsys.InProgress:
		return false, fmt.Errorf("the self-test's read is in progress after %v", selfTestTime)
	default:
		return true, errors.Join(fmt.Errorf("the self-test's read: %w", st), reader.sys.Free(reader.handle, h))
	}
	return true, errors.Join(reader.sys.Free(reader.handle, h), reader.unload(source.name))
}

// postAndWait posts a read and gives its state when it has ended; InProgress where that took longer than most.
func (a *agent) postAndWait(h nixlsys.Request, most time.Duration) nixlsys.Status {
	st := a.sys.Post(a.handle, h)
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	tick := time.NewTicker(firstNap)
	defer tick.Stop()
	for ; st == nixlsys.InProgress; st = a.sys.Status(a.handle, h) {
		select {
		case <-tick.C:
		case <-deadline.C:
			return st
		}
	}
	return st
}
