package refit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/landing"
)

// transfer reads from one rank into one or more memories, and waits for the end of all of it.
func (u *pull) transfer(ctx context.Context, rank int, reads map[*rdma.Memory]*landing.Read) error {
	given := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, u.r.cfg.Stall, &stallError{rank, u.r.cfg.Stall})
	defer cancel()
	conn, _, err := u.r.peers.get(ctx, u.version, rank)
	if err != nil {
		return because(ctx, err)
	}
	posted := map[*rdma.Memory]rdma.Transfer{}
	for m, r := range reads {
		t, rerr := r.Post(conn, m)
		if rerr != nil {
			err = rerr
			break
		}
		posted[m] = t
	}
	for m, t := range posted {
		err = errors.Join(err, u.await(ctx, t, m))
	}
	if err == nil || given.Err() != nil || rdma.KindOf(err) == rdma.ErrRefused {
		return err
	}
	if rdma.KindOf(err) == rdma.ErrAborted { // by another batch of the rank, which found out first what is wrong with it
		if why := u.r.peers.whyLost(rank, conn); why != nil {
			return fmt.Errorf("%w (and this read with it: %w)", why, err)
		}
	}
	u.r.peers.drop(rank, conn, err)
	return err
}

// errNeverEnded marks a transfer that reached no terminal state. Its destination is given up.
var errNeverEnded = errors.New("the transfer has not ended, and may still write")

// abortGrace is how long an aborted transfer may take to end before its memory is given up.
const abortGrace = 10 * time.Second

// await waits for the terminal state of a transfer into m, always: memory is free to use only then.
func (u *pull) await(ctx context.Context, t rdma.Transfer, m *rdma.Memory) error {
	err := t.Wait(ctx)
	end := err
	if err != nil && ctx.Err() != nil {
		t.Abort()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortGrace)
		defer cancel()
		end, err = t.Wait(grace), because(ctx, err)
	}
	if end != nil && (rdma.KindOf(end) == 0 || rdma.KindOf(end) == rdma.ErrQuarantined) {
		u.giveUp(m)
		return fmt.Errorf("%w: %w", err, errNeverEnded)
	}
	return err
}

// because tells why the context ended instead of that it did.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
		return cause
	}
	return err
}

// stallError is the cause of a batch's deadline.
type stallError struct {
	rank  int
	limit time.Duration
}

func (e *stallError) Error() string {
	return fmt.Sprintf("read from rank %d: no batch ended within %v", e.rank, e.limit)
}

func (e *stallError) Unwrap() error { return context.DeadlineExceeded }

// giveUp notes that a transfer may write to m at any time from now on.
func (u *pull) giveUp(m *rdma.Memory) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.givenUp == nil {
		u.givenUp = map[*rdma.Memory]bool{}
	}
	u.givenUp[m] = true
}

func (u *pull) isGivenUp(m *rdma.Memory) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.givenUp[m]
}

// arenaGivenUp says whether a transfer may still write to the slot.
func (u *pull) arenaGivenUp() bool {
	for i := range u.r.cfg.Dests {
		if u.isGivenUp(u.slot.Memory(i)) {
			return true
		}
	}
	return false
}
