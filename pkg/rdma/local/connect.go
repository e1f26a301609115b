package local

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// connect finds the process and the control page, and makes sure of both.
func (t *Transport) connect(r rdma.Remote) (*peer, error) {
	no := func(kind rdma.Kind, format string, args ...any) error {
		return fail("connect", r.Rank, kind, fmt.Errorf(format, args...))
	}
	switch {
	case r.Access.Transport != Name:
		return nil, no(rdma.ErrUnavailable, "access is of %q", r.Access.Transport)
	case r.Host != t.host:
		return nil, no(rdma.ErrUnavailable, "the endpoint is on host %s, this is %s", r.Host, t.host)
	}
	a, err := decodeAccess(r.Access.Metadata)
	if err != nil {
		return nil, no(rdma.ErrRefused, "decode access: %w", err)
	}
	if a.PidNS != t.pidNS {
		return nil, no(rdma.ErrUnavailable, "the endpoint is in another pid namespace (%d, this is %d)", a.PidNS, t.pidNS)
	}
	if err := agree(a.Regions, r.Regions); err != nil {
		return nil, no(rdma.ErrRefused, "%w", err)
	}
	p := &peer{t: t, remote: r, access: a, pidfd: -1, view: view{fd: -1}, maps: make([]*source, len(a.Regions))}
	if err := p.find(); err != nil {
		p.unmap()
		return nil, err
	}
	return p, nil
}

// agree compares what the access says of regions with what the table says.
func agree(own []regionAccess, table []rdma.RemoteRegion) error {
	if len(table) > len(own) {
		return fmt.Errorf("%d regions announced, %d accessible", len(table), len(own))
	}
	for i, g := range table {
		if g.Nbytes != own[i].Nbytes || g.Base != own[i].Base || g.Nbytes < 1 || g.Nbytes > math.MaxInt {
			return fmt.Errorf("region %d: announced as %d bytes at %#x, accessible as %d at %#x", i, g.Nbytes, g.Base, own[i].Nbytes, own[i].Base)
		}
	}
	return nil
}

// find opens the process, then asks when it began: in this order a number that was given to a new process in between
// is noticed.
func (p *peer) find() error {
	pid := p.access.PID
	no := func(kind rdma.Kind, err error) error { return fail("connect", p.remote.Rank, kind, err) }
	if pid == 0 || pid > math.MaxInt32 {
		return no(rdma.ErrRefused, fmt.Errorf("process %d", pid))
	}
	var err error
	if p.pidfd, err = unix.PidfdOpen(int(pid), 0); err != nil {
		return no(pidfdError(err), fmt.Errorf("open process %d: %w", pid, err))
	}
	start, err := startTime(pid)
	if err != nil {
		return no(rdma.ErrUnreachable, fmt.Errorf("read the start time of process %d: %w", pid, err))
	}
	if start != p.access.Start {
		return no(rdma.ErrStale, fmt.Errorf("process %d is another one: began at tick %d, not %d", pid, start, p.access.Start))
	}
	fd, err := p.access.Control.open(pid)
	if err != nil {
		return no(openError(err), fmt.Errorf("open the control page: %w", err))
	}
	p.view.fd = fd
	return p.checkIncarnation()
}

func (p *peer) checkIncarnation() error {
	got, err := p.view.incarnation()
	if err == nil && got != p.remote.Incarnation {
		err = fmt.Errorf("want incarnation %s, found %s", p.remote.Incarnation, got)
	}
	if err != nil {
		return fail("connect", p.remote.Rank, rdma.ErrStale, err)
	}
	return nil
}

func pidfdError(err error) rdma.Kind {
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return rdma.ErrUnavailable
	}
	return rdma.ErrUnreachable
}

// alive says whether the process still runs: its pidfd becomes readable at the end.
func (p *peer) alive() bool {
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n == 0
		}
	}
}
