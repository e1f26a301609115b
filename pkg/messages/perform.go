package messages

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// machine is what drive can run.
type machine interface {
	Step(protocol.Result) protocol.Intent
}

// drive performs the intents of m until it is done or ctx ends. The error of a
// context that ended carries the last thing that went wrong.
func (c *Control) drive(ctx context.Context, m machine) error {
	return c.driveWith(ctx, m, c.perform, nil)
}

// performer does what one intent asks for.
type performer func(context.Context, protocol.Intent) protocol.Result

// driveWith is drive with another performer, whose waits also end when something comes
// over wake.
func (c *Control) driveWith(ctx context.Context, m machine, perform performer, wake <-chan *nats.Msg) error {
	res := protocol.Result{Now: c.now()}
	var last error
	for {
		in := m.Step(res)
		switch in.Verb {
		case protocol.Done:
			return nil
		case protocol.Fail:
			return publicError(in.Err)
		}
		if in.Verb == protocol.Wait {
			rest(ctx, in.Delay, wake)
			res = protocol.Result{Outcome: protocol.OK}
		} else {
			res = perform(ctx, in)
		}
		res.Now = c.now()
		if res.Err != nil {
			last = res.Err
		}
		if err := ctx.Err(); err != nil {
			return gaveUp(ctx, last)
		}
	}
}

// gaveUp is the error of an operation whose context ended.
func gaveUp(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) {
		return cause
	}
	if last != nil {
		return fmt.Errorf("%w: %w: last answer: %w", ErrUnavailable, cause, last)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, cause)
}

// publicError gives the errors of the machines their public names.
func publicError(err error) error {
	for from, to := range map[error]error{
		protocol.ErrConflict: ErrConflict, protocol.ErrFenced: ErrFenced, protocol.ErrAbandoned: ErrAbandoned,
		protocol.ErrRetired: ErrRetired, protocol.ErrNotCommitted: ErrNotCommitted, protocol.ErrLost: ErrLeaseLost,
		protocol.ErrHeld: ErrHeld, protocol.ErrMissing: ErrIncomplete,
	} {
		if err == from { //nolint:errorlint // the machines return their sentinels bare
			return to
		}
	}
	return err
}

// perform does what one intent asks for. It never fails: what went wrong is part of
// the result.
func (c *Control) perform(ctx context.Context, in protocol.Intent) protocol.Result {
	switch in.Verb {
	case protocol.Put:
		return c.performPut(ctx, in)
	case protocol.Swap:
		return c.performSwap(ctx, in)
	case protocol.Read:
		return c.performRead(ctx, in)
	case protocol.ReadLeader:
		query := getQuery{LastFor: c.subjectOf(in.Place)}
		return c.performLeader(ctx, c.streamOf(in.Place.Kind), query)
	case protocol.LastRun:
		return c.performLeader(ctx, c.subj.stream(), getQuery{LastFor: c.subj.runs()})
	case protocol.LastOrder:
		return c.performLeader(ctx, c.subj.stream(), getQuery{LastFor: c.subj.orders()})
	case protocol.ListLeases:
		return c.performList(ctx, "KV_"+c.subj.leaseBucket(), c.subj.leases(in.Place.Key))
	case protocol.ListRuns:
		return c.listRuns(ctx)
	case protocol.Purge:
		return result(c.purgeUpTo(ctx, c.subjectOf(in.Place), in.Expect))
	case protocol.PurgeTable:
		return c.performPurgeTable(ctx, in.Place)
	}
	panic(fmt.Sprintf("messages: unknown verb %d", in.Verb))
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// rest waits for about d, so that ranks that wait for each other do not ask in step.
func rest(ctx context.Context, d time.Duration, wake <-chan *nats.Msg) {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-wake:
	}
}

// result sorts an error of the server into an outcome.
func result(err error) protocol.Result {
	var refused *apiError
	switch {
	case err == nil:
		return protocol.Result{Outcome: protocol.OK}
	case errors.Is(err, ErrPermission), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrMaxPayload):
		return protocol.Result{Outcome: protocol.Refused, Err: err}
	case errors.As(err, &refused):
		if refused.ErrCode == codeInFlight {
			return protocol.Result{Outcome: protocol.Busy, Err: err}
		}
		if refused.transient() {
			return protocol.Result{Outcome: protocol.Unknown, Err: err}
		}
		if refused.ErrCode == codeStreamNotFound {
			err = fmt.Errorf("%w: %w", ErrNoStream, err)
		}
		return protocol.Result{Outcome: protocol.Refused, Err: err}
	}
	return protocol.Result{Outcome: protocol.Unknown, Err: err}
}

// performPut stores a message where none is. Without a fence the expectation is on the
// message's own subject. With one it is on the record of the next run, and the
// stream's limit of one message a subject keeps the first writer's.
func (c *Control) performPut(ctx context.Context, in protocol.Intent) protocol.Result {
	m := &nats.Msg{Subject: c.subjectOf(in.Place), Data: in.Body.Bytes, Header: c.headers(ctx)}
	m.Header.Set(hdrExpectSeq, "0")
	if in.Fence != 0 {
		m.Header.Set(hdrExpectSubject, c.subj.run(in.Fence+1))
	}
	switch {
	case in.TTL > 0:
		m.Header.Set(hdrTTL, seconds(in.TTL))
	case in.Place.Kind == protocol.KindRun, in.Place.Kind == protocol.KindOrder:
		m.Header.Set(hdrTTL, ttlNever)
	}
	seq, err := c.store(ctx, m)
	var refused *apiError
	if errors.As(err, &refused) {
		switch {
		case refused.ErrCode == codeWrongLastSequence && in.Fence != 0:
			return protocol.Result{Outcome: protocol.Fenced, Err: err}
		case refused.ErrCode == codeWrongLastSequence, isTaken(refused):
			return protocol.Result{Outcome: protocol.Exists, Err: err}
		}
	}
	res := result(err)
	res.Seq = seq
	return res
}

// isTaken tells the one failure of the store that is an answer from the others, such
// as a full stream, which have the same code.
func isTaken(e *apiError) bool {
	return e.ErrCode == codeStoreFailed && strings.Contains(e.Description, "per subject")
}

func (c *Control) performSwap(ctx context.Context, in protocol.Intent) protocol.Result {
	m := &nats.Msg{Subject: c.subjectOf(in.Place), Data: in.Body.Bytes, Header: nats.Header{}}
	m.Header.Set(hdrExpectSeq, strconv.FormatUint(in.Expect, 10))
	if in.Body.Class == protocol.ClassReleased {
		m.Header.Set(hdrKVOperation, "PURGE")
		m.Header.Set(hdrRollup, "sub")
		m.Header.Set(hdrTTL, seconds(releasedTTL))
	} else {
		m.Header.Set(hdrTTL, seconds(in.TTL))
	}
	seq, err := c.store(ctx, m)
	var refused *apiError
	if errors.As(err, &refused) && refused.ErrCode == codeWrongLastSequence {
		return protocol.Result{Outcome: protocol.Exists, Err: err}
	}
	res := result(err)
	res.Seq = seq
	return res
}

// releasedTTL is how long the mark of a released lease stays.
const releasedTTL = 10 * time.Second

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(max(d/time.Second, 1)), 10) + "s"
}

func (c *Control) performRead(ctx context.Context, in protocol.Intent) protocol.Result {
	msgs, err := c.readAll(ctx, c.subj.stream(), c.subjectsOf(in.Places))
	res := result(err)
	res.Items = c.items(msgs)
	return res
}

func (c *Control) subjectsOf(places []protocol.Place) []string {
	subjects := make([]string, len(places))
	for i, p := range places {
		subjects[i] = c.subjectOf(p)
	}
	return subjects
}

func (c *Control) performLeader(ctx context.Context, stream string, query getQuery) protocol.Result {
	m, err := c.leaderGet(ctx, stream, query)
	res := result(err)
	if m != nil {
		if it, ok := c.item(m); ok {
			res.Items = []protocol.Item{it}
		}
	}
	return res
}

// performList walks over the messages of a subject through the leader, one by one: a
// listing of subjects would show released leases too.
func (c *Control) performList(ctx context.Context, stream, filter string) protocol.Result {
	var found []protocol.Item
	for seq := uint64(1); ; {
		m, err := c.leaderGet(ctx, stream, getQuery{Seq: seq, NextFor: filter})
		if err != nil {
			return result(err)
		}
		if m == nil {
			return protocol.Result{Outcome: protocol.OK, Items: found}
		}
		if it, ok := c.item(m); ok && it.Body.Class != protocol.ClassReleased {
			found = append(found, it)
		}
		seq = m.Seq + 1
	}
}

// listRuns reads all runs that were ever taken in two requests, or one more for each
// thousand: jobs come and go for years, and a job that takes its run should not ask once
// for each that was before it. A replica may lag, but what it shows is the beginning of
// what the leader has: if the newest run is among it, so are all others. If it is
// not, the outcome is unknown and the list is asked for again.
func (c *Control) listRuns(ctx context.Context) protocol.Result {
	newest, err := c.leaderGet(ctx, c.subj.stream(), getQuery{LastFor: c.subj.runs()})
	if err != nil || newest == nil {
		return result(err)
	}
	msgs, err := c.list(ctx, c.subj.stream(), c.subj.runs())
	if err == nil && !slices.ContainsFunc(msgs, func(m *stored) bool { return m.Seq >= newest.Seq }) {
		err = errLagging
	}
	res := result(err)
	if res.Outcome == protocol.OK {
		res.Items = c.items(msgs)
	}
	return res
}

// errLagging says that a replica does not show what the leader has.
var errLagging = errors.New("the replica lags behind the leader")

func (c *Control) performPurgeTable(ctx context.Context, p protocol.Place) protocol.Result {
	digests := c.subj.root() + "v." + p.Key.String() + ".d." + strconv.Itoa(p.Rank) + ".>"
	if err := c.purge(ctx, digests); err != nil {
		return result(err)
	}
	return result(c.purge(ctx, c.subj.table(p.Key, p.Rank)))
}

func (c *Control) streamOf(k protocol.Kind) string {
	if k == protocol.KindLease {
		return "KV_" + c.subj.leaseBucket()
	}
	return c.subj.stream()
}

func (c *Control) subjectOf(p protocol.Place) string {
	switch p.Kind {
	case protocol.KindTable:
		return c.subj.table(p.Key, p.Rank)
	case protocol.KindCommit:
		return c.subj.commit(p.Key)
	case protocol.KindLease:
		return c.subj.lease(p.Key, p.Name)
	case protocol.KindRun:
		return c.subj.run(p.Key.Run)
	case protocol.KindOrder:
		return c.subj.order(p.Key.Run)
	}
	panic(fmt.Sprintf("messages: unknown kind of place %d", p.Kind))
}
