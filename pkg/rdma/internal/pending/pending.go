// Package pending is the transfer that all transports hand out: a count of parts, the first error, and the hold on
// the destination that ends with the terminal state and not before.
package pending

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// Transfer counts the parts of one batch. It is terminal when every part has ended, also after an error: a part that
// is still under way may still write.
type Transfer struct {
	transport string
	rank      int
	release   func()
	done      chan struct{}
	doneOnce  sync.Once
	abort     chan struct{}
	abortOnce sync.Once
	start     time.Time
	nbytes    int64
	ceiling   int64                // bytes/s, 0: unknown
	verdict   func() error         // the last word on a transfer whose parts all went well; nil for none
	onAbort   func()               // wakes whoever works on a part; nil for none
	onFinish  func()               // of the set that follows this transfer; nil for none
	groups    []atomic.Int32       // jobs that are missing of each part of the batch
	landed    func(part int) error // hears of each part that has come; nil for none

	mu   sync.Mutex
	left int
	err  error
}

// New holds dst and awaits the ends of at least one part. It is followed by live, whose owner is thereby refused once
// closed. OnAbort, if any, runs once when an early end is asked for.
func New(live *Set, transport string, rank int, dst *rdma.Memory, parts int, onAbort func(*Transfer)) (*Transfer, error) {
	release, err := dst.Hold()
	if err != nil {
		return nil, &rdma.Error{Kind: rdma.ErrRefused, Op: "read", Transport: transport, Rank: rank, Err: err}
	}
	t := &Transfer{
		transport: transport, rank: rank, release: release, left: parts, start: time.Now(),
		done: make(chan struct{}), abort: make(chan struct{}),
	}
	if onAbort != nil {
		t.onAbort = func() { onAbort(t) }
	}
	if !live.Add(t) {
		release()
		return nil, t.Fail(rdma.ErrRefused, fmt.Errorf("peer: %w", rdma.ErrClosed))
	}
	if parts == 0 {
		t.finish()
	}
	return t, nil
}

// Done ends one part. The first error is the transfer's.
func (t *Transfer) Done(err error) {
	t.mu.Lock()
	if t.err == nil {
		t.err = err
	}
	t.left--
	last := t.left == 0
	t.mu.Unlock()
	if last {
		t.judge()
		t.finish()
	}
}

// SetParts says how many jobs bring each part of the batch, and who hears when the last of a part's has ended well. It is
// called before the first begins; jobs then end by DoneOf.
func (t *Transfer) SetParts(jobs []int32, landed func(part int) error) {
	if landed == nil {
		return
	}
	t.groups, t.landed = make([]atomic.Int32, len(jobs)), landed
	for i, n := range jobs {
		t.groups[i].Store(n)
	}
}

// DoneOf ends one job of a part of the batch.
func (t *Transfer) DoneOf(part int, err error) {
	if err == nil {
		err = t.Landed(part)
	}
	t.Done(err)
}

// Landed tells, if this was the part's last job, that its bytes are there. The job's goroutine does so itself, before Done.
// Nobody is told of parts of a transfer that has failed or was given up.
func (t *Transfer) Landed(part int) error {
	if t.landed != nil && t.groups[part].Add(-1) == 0 && t.Err() == nil {
		return t.landed(part)
	}
	return nil
}

// judge gives the last word: no part is under way, and nobody was told yet.
func (t *Transfer) judge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = t.checkRate()
	}
	if t.err == nil && t.verdict != nil {
		t.err = t.verdict()
	}
}

// SetVerdict adds a last check, made when all parts went well. It is called before the first part begins.
func (t *Transfer) SetVerdict(check func() error) { t.verdict = check }

// tell wakes those who wait, once.
func (t *Transfer) tell() {
	t.doneOnce.Do(func() {
		t.onFinish()
		close(t.done)
	})
}

// Quarantine answers those who wait although the transfer may still write: its parts never ended. The destination
// stays held until they do, if ever. Without effect on a transfer that has ended.
func (t *Transfer) Quarantine(cause error) {
	t.mu.Lock()
	ended := t.left == 0
	if !ended && t.err == nil {
		t.err = t.Fail(rdma.ErrQuarantined, cause)
	}
	t.mu.Unlock()
	if !ended {
		t.tell()
	}
}

// SetCeiling says how much is read and how fast the fabric can be at most, in bytes/s. It is called before the first
// part begins.
func (t *Transfer) SetCeiling(nbytes, ceiling int64) { t.nbytes, t.ceiling = nbytes, ceiling }

// checkRate finds false completions: bytes that can't have come so soon.
func (t *Transfer) checkRate() error {
	if t.ceiling == 0 || t.nbytes == 0 {
		return nil
	}
	took := time.Since(t.start)
	if float64(t.nbytes) > float64(t.ceiling)*took.Seconds() {
		return t.Fail(rdma.ErrFalseCompletion, fmt.Errorf("%d bytes in %v, over %d bytes/s", t.nbytes, took, t.ceiling))
	}
	return nil
}

func (t *Transfer) finish() {
	t.release()
	t.tell()
}

// Err is nil while nothing went wrong, ErrAborted once an abort is asked for: what a part asks before it begins.
func (t *Transfer) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.err
	}
	select {
	case <-t.abort:
		return t.Fail(rdma.ErrAborted, nil)
	default:
		return nil
	}
}

// Fail makes an error of this transfer's transport and rank.
func (t *Transfer) Fail(kind rdma.Kind, cause error) error {
	return &rdma.Error{Kind: kind, Op: "read", Transport: t.transport, Rank: t.rank, Err: cause}
}

// Aborted is closed when an early end is asked for.
func (t *Transfer) Aborted() <-chan struct{} { return t.abort }

// Finished is closed at the terminal state.
func (t *Transfer) Finished() <-chan struct{} { return t.done }

// Abort implements rdma.Transfer.
func (t *Transfer) Abort() {
	t.abortOnce.Do(func() {
		close(t.abort)
		if t.onAbort != nil {
			t.onAbort()
		}
	})
}

// Wait implements rdma.Transfer. A transfer that has ended answers so even under an ended context.
func (t *Transfer) Wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.result()
	default:
	}
	select {
	case <-t.done:
		return t.result()
	case <-ctx.Done():
		return fmt.Errorf("wait for the read from rank %d over %s: %w", t.rank, t.transport, context.Cause(ctx))
	}
}

func (t *Transfer) result() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
