package messages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Report says why a version is in the state that it is in.
type Report struct {
	Key       Key
	Run       RunRecord // the newest run
	Fenced    bool      // the version's run is not the newest
	Manifest  *Manifest // nil: not committed, or ended
	Ended     *Ended    // nil: not ended
	World     int       // 0: not known
	Published []int     // ranks whose table is there
	Missing   []int     // ranks whose table is not
	Conflicts []string  // what contradicts what, by rank
	Holders   []string  // receivers with a lease
	Failures  []string  // what processes say that went wrong with it
}

// Why gathers what is known of a version through the leader: which ranks have not
// published, whose table conflicts, who holds a lease.
func (c *Control) Why(ctx context.Context, key Key) (*Report, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	r := &Report{Key: key}
	var err error
	if r.Run, _, err = c.lastRun(ctx); err != nil {
		return nil, fmt.Errorf("explain version %s: %w", key, err)
	}
	r.Fenced = key.Run < r.Run.Run
	it, err := c.readOne(ctx, protocol.Intent{Verb: protocol.ReadLeader, Place: protocol.Place{Kind: protocol.KindCommit, Key: key}})
	if err != nil {
		return nil, fmt.Errorf("explain version %s: %w", key, err)
	}
	r.addCommit(it)
	if err := c.addTables(ctx, r); err != nil {
		return nil, fmt.Errorf("explain version %s: %w", key, err)
	}
	if r.Holders, err = c.Holders(ctx, key); err != nil {
		return nil, err
	}
	statuses, err := c.Statuses(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range statuses {
		if f := s.Failure; f != nil && f.Key == key {
			r.Failures = append(r.Failures, fmt.Sprintf("%s: %s: %s", s.Name, f.Class, f.Text))
		}
	}
	return r, nil
}

func (r *Report) addCommit(it *protocol.Item) {
	if it == nil {
		return
	}
	switch f := it.Body.Facts.(type) {
	case *Manifest:
		r.Manifest, r.World = f, f.World
	case *Ended:
		r.Ended = f
	case error:
		r.Conflicts = append(r.Conflicts, fmt.Sprintf("commit: %v", f))
	}
}

// addTables walks over the version's tables through the leader.
func (c *Control) addTables(ctx context.Context, r *Report) error {
	if r.World == 0 && !r.Fenced {
		r.World = r.Run.World
	}
	filter := c.subj.root() + "v." + r.Key.String() + ".t.*"
	for seq := uint64(1); ; {
		m, err := c.leaderGet(ctx, c.subj.stream(), getQuery{Seq: seq, NextFor: filter})
		if err != nil {
			return err
		}
		if m == nil {
			break
		}
		if it, ok := c.item(m); ok {
			r.addTable(it)
		}
		seq = m.Seq + 1
	}
	slices.Sort(r.Published)
	for rank := range r.World {
		if _, found := slices.BinarySearch(r.Published, rank); !found {
			r.Missing = append(r.Missing, rank)
		}
	}
	return nil
}

func (r *Report) addTable(it protocol.Item) {
	rank := it.Place.Rank
	r.Published = append(r.Published, rank)
	t, ok := it.Body.Facts.(*Table)
	switch {
	case !ok:
		r.Conflicts = append(r.Conflicts, fmt.Sprintf("rank %d: %v", rank, it.Body.Facts))
	case r.World != 0 && t.World != r.World:
		r.Conflicts = append(r.Conflicts, fmt.Sprintf("rank %d: table is for a world of %d, not %d", rank, t.World, r.World))
	case r.Manifest != nil && rank < r.Manifest.World && r.Manifest.Ranks[rank].Table != it.Body.Digest:
		r.Conflicts = append(r.Conflicts, fmt.Sprintf("rank %d: its table is not the one that the manifest names", rank))
	}
}

// String draws the report for people, one fact a line.
func (r *Report) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	switch {
	case r.Ended != nil:
		line("version %s is %s: %s", r.Key, r.Ended.State, r.Ended.Reason)
	case r.Manifest != nil:
		line("version %s is committed: %d ranks, %d bytes", r.Key, r.Manifest.World, r.Manifest.Nbytes())
	case len(r.Published) == 0:
		line("version %s: nobody has published anything", r.Key)
	default:
		line("version %s is not committed", r.Key)
	}
	if r.Fenced {
		line("its run is fenced by run %d of job %q", r.Run.Run, r.Run.Job)
	}
	if len(r.Missing) > 0 && r.Ended == nil {
		line("tables are missing of %d of %d ranks: %s", len(r.Missing), r.World, rankList(r.Missing))
	}
	for _, c := range r.Conflicts {
		line("conflict: %s", c)
	}
	for _, h := range r.Holders {
		line("read by %s", h)
	}
	for _, f := range r.Failures {
		line("failed in %s", f)
	}
	return b.String()
}

// Restore puts a publication back that the server has lost, with the run's record and
// the commit. It changes nothing when all is there. ErrFenced, ErrRetired and
// ErrAbandoned say that it is not wanted any more.
func (c *Control) Restore(ctx context.Context, run RunRecord, p Publication) error {
	bounded, cancel := c.deadline(ctx)
	defer cancel()
	lost, err := c.lost(bounded, p)
	if err != nil || !lost {
		return err
	}
	c.log.Warn("the server has lost a version: publishing it again", "version", p.Key.String(), "rank", p.Rank)
	c.stored.forget()
	body, err := EncodeRun(&run)
	if err != nil {
		return fmt.Errorf("restore version %s: %w", p.Key, err)
	}
	put := &protocol.PutOnce{
		Place: protocol.Place{Kind: protocol.KindRun, Key: Key{Run: run.Run}}, Fence: run.Run,
		Body: protocol.Body{Class: protocol.ClassRun, Digest: protocol.Sum(body), Bytes: body},
	}
	if err := c.drive(bounded, put); err != nil {
		return fmt.Errorf("restore the record of run %d: %w", run.Run, err)
	}
	if err := c.Publish(ctx, p); err != nil {
		return err
	}
	_, err = c.Commit(ctx, p.Key, p.World)
	return err
}

// lost asks the leader whether the run's record, the commit or this rank's table is gone, or was: what is in a stream that
// came back empty, and was filled by other ranks since, does not hold this rank's blobs.
func (c *Control) lost(ctx context.Context, p Publication) (bool, error) {
	if gone, err := c.emptied(ctx, p.Key.Run); gone || err != nil {
		return gone, err
	}
	for _, place := range []protocol.Place{
		{Kind: protocol.KindCommit, Key: p.Key},
		{Kind: protocol.KindTable, Key: p.Key, Rank: p.Rank},
	} {
		it, err := c.readOne(ctx, protocol.Intent{Verb: protocol.ReadLeader, Place: place})
		switch {
		case err != nil:
			return false, fmt.Errorf("look for version %s: %w", p.Key, err)
		case it == nil:
			return true, nil
		case it.Body.Class == protocol.ClassRetired:
			return false, fmt.Errorf("look for version %s: %w", p.Key, ErrRetired)
		case it.Body.Class == protocol.ClassAbandoned:
			return false, fmt.Errorf("look for version %s: %w", p.Key, ErrAbandoned)
		}
	}
	return false, nil
}

// emptied reports whether the stream has lost a run's record since this process first saw it. A record is written once and
// never expires, so one that was stored at another time is one that somebody has put back.
func (c *Control) emptied(ctx context.Context, run uint64) (bool, error) {
	var m *stored
	_, err := answered(ctx, func() protocol.Result {
		got, err := c.leaderGet(ctx, c.subj.stream(), getQuery{LastFor: c.subj.run(run)})
		m = got
		return result(err)
	})
	if err != nil {
		return false, fmt.Errorf("look for the record of run %d: %w", run, err)
	}
	if m == nil {
		return true, nil
	}
	id := strconv.FormatUint(run, 10)
	before, known := c.recorded.get(id)
	c.recorded.put(id, m.Time)
	return known && !before.Equal(m.Time), nil
}

// CollectRun removes what an older run has left behind: it ends its versions, waits for
// their leases and purges its tables and blobs. Rank 0 of a newer run calls it once
// its first version is committed. Versions that are still read when ctx ends are left
// for the next call.
func (c *Control) CollectRun(ctx context.Context, run uint64) error {
	current, ok, err := c.Run(ctx)
	if err != nil {
		return fmt.Errorf("collect run %d: %w", run, err)
	}
	if !ok || run >= current.Run {
		return fmt.Errorf("collect run %d: the newest run is %d: only older ones can be collected", run, current.Run)
	}
	list, err := c.Versions(ctx)
	if err != nil {
		return fmt.Errorf("collect run %d: %w", run, err)
	}
	for _, v := range list {
		if v.Key.Run == run && v.Manifest != nil {
			if err := c.WaitDrained(ctx, v.Key); err != nil {
				return fmt.Errorf("collect run %d: %w", run, err)
			}
		}
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	root := c.subj.root()
	return errors.Join(
		c.purge(ctx, fmt.Sprintf("%sv.%d.>", root, run)),
		c.purge(ctx, fmt.Sprintf("%sb.%d.>", root, run)),
	)
}
