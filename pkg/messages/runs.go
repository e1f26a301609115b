package messages

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// TakeRun takes the next run for job, which fences every older run, or returns the run
// that job holds already. Rank 0 calls it when the training job starts.
func (c *Control) TakeRun(ctx context.Context, job string, world int) (RunRecord, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	m := &protocol.TakeRun{Job: job, Make: func(n uint64) (protocol.Body, error) {
		return makeRun(n, job, world)
	}}
	if err := c.drive(ctx, m); err != nil {
		return RunRecord{}, fmt.Errorf("take a run for job %q: %w", job, err)
	}
	rec, err := DecodeRun(m.Record.Body.Bytes)
	if err != nil {
		return RunRecord{}, fmt.Errorf("take a run for job %q: %w", job, err)
	}
	if rec.World != world {
		return RunRecord{}, fmt.Errorf("take a run for job %q: %w: run %d has a world of %d, not %d: a new world size is a new job", job, ErrConflict, rec.Run, rec.World, world)
	}
	return *rec, nil
}

func makeRun(n uint64, job string, world int) (protocol.Body, error) {
	rec := RunRecord{Run: n, Job: job, World: world, Taken: time.Now()}
	if _, err := rand.Read(rec.Nonce[:]); err != nil {
		return protocol.Body{}, fmt.Errorf("make a nonce: %w", err)
	}
	b, err := EncodeRun(&rec)
	return protocol.Body{Class: protocol.ClassRun, Digest: protocol.Sum(b), Bytes: b, Owner: job, World: world}, err
}

// AwaitRun waits until job holds the newest run. Ranks other than 0 call it; ctx bounds
// the wait.
func (c *Control) AwaitRun(ctx context.Context, job string) (RunRecord, error) {
	var newest RunRecord
	for {
		rec, ok, err := c.lastRun(ctx)
		if ok && rec.Job == job {
			return rec, nil
		}
		if ok {
			newest = rec
		}
		pause(ctx, awaitPoll)
		if ctx.Err() != nil {
			if err == nil {
				err = context.Cause(ctx)
			}
			return RunRecord{}, fmt.Errorf("wait for rank 0 to take a run for job %q (newest is run %d of job %q): %w", job, newest.Run, newest.Job, err)
		}
	}
}

// awaitPoll is how often ranks look for their run.
const awaitPoll = 50 * time.Millisecond

// Run reads the newest run; false when none was ever taken.
func (c *Control) Run(ctx context.Context) (RunRecord, bool, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	return c.lastRun(ctx)
}

// lastRun asks the leader until ctx ends.
func (c *Control) lastRun(ctx context.Context) (RunRecord, bool, error) {
	return c.runRecord(ctx, protocol.Intent{Verb: protocol.LastRun})
}

// recordOf reads the record of one run, once.
func (c *Control) recordOf(ctx context.Context, run uint64) (RunRecord, error) {
	id := strconv.FormatUint(run, 10)
	if rec, ok := c.runs.get(id); ok {
		return rec, nil
	}
	place := protocol.Place{Kind: protocol.KindRun, Key: Key{Run: run}}
	rec, ok, err := c.runRecord(ctx, protocol.Intent{Verb: protocol.ReadLeader, Place: place})
	if err != nil || !ok {
		return RunRecord{}, fmt.Errorf("read the record of run %d: found %v: %w", run, ok, errors.Join(err, ErrIncomplete))
	}
	c.runs.put(id, rec)
	return rec, nil
}

func (c *Control) runRecord(ctx context.Context, in protocol.Intent) (RunRecord, bool, error) {
	it, err := c.readOne(ctx, in)
	if err != nil || it == nil {
		return RunRecord{}, false, err
	}
	rec, ok := it.Body.Facts.(*RunRecord)
	if !ok {
		return RunRecord{}, false, fmt.Errorf("read the record of run %d: %w", it.Place.Key.Run, ErrMalformed)
	}
	return *rec, true, nil
}

// readOne performs one leader read as often as it takes.
func (c *Control) readOne(ctx context.Context, in protocol.Intent) (*protocol.Item, error) {
	res, err := answered(ctx, func() protocol.Result { return c.perform(ctx, in) })
	if err != nil || len(res.Items) == 0 {
		return nil, err
	}
	return &res.Items[0], nil
}

// answered asks until there is an answer: yes, or a refusal, which is the error.
func answered(ctx context.Context, ask func() protocol.Result) (protocol.Result, error) {
	for {
		res := ask()
		switch res.Outcome {
		case protocol.OK:
			return res, nil
		case protocol.Refused:
			return res, res.Err
		}
		pause(ctx, retryDelay)
		if ctx.Err() != nil {
			return res, gaveUp(ctx, res.Err)
		}
	}
}

// retryDelay is between attempts of plain reads.
const retryDelay = 100 * time.Millisecond
