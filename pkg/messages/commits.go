package messages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Commit waits until every rank's table of a version is there, and writes the manifest
// or confirms the one that another rank wrote. Any rank may call it, and all of them at
// once. It waits until ctx ends, then names the ranks that are missing; there is no
// deadline of its own, since ranks finish their step when they do.
func (c *Control) Commit(ctx context.Context, key Key, world int) (m *Manifest, err error) {
	subject := c.subj.commit(key)
	ctx, span := c.span(ctx, "commit", "send", commitTemplate, subject, trace.SpanKindProducer, key)
	defer func() { endSpan(span, err) }()
	if err := checkWorld(manifestSchema, key, world); err != nil {
		return nil, fmt.Errorf("commit version %s: %w", key, err)
	}
	build := func(tables []protocol.Item) (protocol.Body, error) { return c.buildManifest(ctx, key, tables) }
	machine := &protocol.Commit{Key: key, World: world, Build: build}
	wake := make(chan *nats.Msg, 8)
	sub, err := c.nc.ChanSubscribe("refit-notify."+c.subj.token+"."+key.String(), wake)
	if err != nil {
		return nil, fmt.Errorf("commit version %s: %w", key, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is gone
	if err := c.driveWith(ctx, machine, c.perform, wake); err != nil {
		if missing := machine.Missing(); len(missing) > 0 && ctx.Err() != nil {
			return nil, &RankError{Op: "commit", Key: key, Ranks: missing, Err: fmt.Errorf("%w: tables are missing: %w", ErrIncomplete, context.Cause(ctx))}
		}
		return nil, fmt.Errorf("commit version %s: %w", key, err)
	}
	return DecodeManifest(machine.Manifest.Body.Bytes)
}

// buildManifest makes the one manifest that these tables can have.
func (c *Control) buildManifest(ctx context.Context, key Key, items []protocol.Item) (protocol.Body, error) {
	tables := make([]*Table, len(items))
	m := &Manifest{Model: c.cfg.Model, Key: key, World: len(items), Ranks: make([]ManifestRank, len(items))}
	for rank, it := range items {
		t, ok := it.Body.Facts.(*Table)
		if !ok {
			return protocol.Body{}, &RankError{Op: "commit", Key: key, Ranks: []int{rank}, Err: fmt.Errorf("unreadable table: %v: %w", it.Body.Facts, ErrMalformed)}
		}
		tables[rank] = t
		if err := m.add(rank, t, it.Body.Digest); err != nil {
			return protocol.Body{}, &RankError{Op: "commit", Key: key, Ranks: []int{rank}, Err: err}
		}
	}
	if err := errors.Join(c.checkGroupsAtCommit(ctx, key, tables), c.checkBaseAtCommit(ctx, m.Base)); err != nil {
		return protocol.Body{}, fmt.Errorf("commit version %s: %w", key, err)
	}
	b, err := EncodeManifest(m)
	return protocol.Body{Class: protocol.ClassManifest, Digest: protocol.Sum(b), Bytes: b, Facts: m}, err
}

func (m *Manifest) add(rank int, t *Table, d Digest) error {
	if t.World != m.World {
		return fmt.Errorf("%w: table is for a world of %d, not %d", ErrContradiction, t.World, m.World)
	}
	if rank == 0 {
		m.Base = t.Base
	} else if refOrNone(t.Base) != refOrNone(m.Base) {
		return fmt.Errorf("%w: base version is %v, that of rank 0 is %v", ErrContradiction, refOrNone(t.Base), refOrNone(m.Base))
	}
	m.Ranks[rank] = ManifestRank{
		Table: d, Layout: t.Layout.Digest, Endpoint: t.Endpoint.Digest, Tiles: t.Tiles.Digest, Nbytes: t.Nbytes,
	}
	return nil
}

// Abandon ends a version that will not be completed, so that nobody waits for it any
// more. When a commit was faster the error is ErrConflict and the version stands.
func (c *Control) Abandon(ctx context.Context, key Key, reason string) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	body, err := c.endBody(key, EndAbandoned, reason)
	if err != nil {
		return fmt.Errorf("abandon version %s: %w", key, err)
	}
	put := &protocol.PutOnce{Place: protocol.Place{Kind: protocol.KindCommit, Key: key}, Body: body, TTL: abandonedTTL}
	err = c.drive(ctx, put)
	if errors.Is(err, ErrConflict) && put.Stored.Body.Class == protocol.ClassAbandoned {
		return nil
	}
	if err != nil {
		return fmt.Errorf("abandon version %s: %w", key, err)
	}
	return nil
}

// abandonedTTL is how long people can read why a version was abandoned. Its tables go
// with Retire, so that it can't be committed afterwards either.
const abandonedTTL = time.Hour

func (c *Control) endBody(key Key, state EndState, reason string) (protocol.Body, error) {
	b, err := EncodeEnded(&Ended{
		Model: c.cfg.Model, Key: key, State: state, Reason: cut(reason), By: cut(c.cfg.Host), At: time.Now(),
	})
	class := protocol.ClassRetired
	if state == EndAbandoned {
		class = protocol.ClassAbandoned
	}
	return protocol.Body{Class: class, Digest: protocol.Sum(b), Bytes: b}, err
}

// Committed is one entry of the list of versions.
type Committed struct {
	Key      Key
	Seq      uint64 // of the commit in the stream: orders commits and orders
	At       time.Time
	Digest   Digest    // of the payload
	Manifest *Manifest // nil: ended
	Ended    *Ended    // nil: stands
	Headers  map[string]string
}

// Versions lists the versions whose commit stands and those that ended lately, by key.
// It reads from any replica and may lag.
func (c *Control) Versions(ctx context.Context) ([]Committed, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	for {
		list, err := c.commits(ctx)
		if err == nil {
			return list, nil
		}
		if res := result(err); res.Outcome == protocol.Refused {
			return nil, fmt.Errorf("list versions of %q: %w", c.cfg.Model, err)
		}
		pause(ctx, retryDelay)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("list versions of %q: %w", c.cfg.Model, gaveUp(ctx, err))
		}
	}
}

// commits makes one attempt to read all commit places.
func (c *Control) commits(ctx context.Context) ([]Committed, error) {
	msgs, err := c.list(ctx, c.subj.stream(), c.subj.commits())
	if err != nil {
		return nil, err
	}
	var list []Committed
	for _, m := range msgs {
		it, ok := c.item(m)
		if !ok {
			continue
		}
		v := Committed{Key: it.Place.Key, Seq: it.Seq, At: m.Time, Digest: it.Body.Digest, Headers: traceHeaders(m.Header)}
		v.Manifest, _ = it.Body.Facts.(*Manifest)
		v.Ended, _ = it.Body.Facts.(*Ended)
		if v.Manifest != nil || v.Ended != nil {
			list = append(list, v)
		}
	}
	sortCommitted(list)
	return list, nil
}

// Newest is the version that receivers should serve: committed, of the newest run, not
// withdrawn, and not rolled back. False when there is none.
func (c *Control) Newest(ctx context.Context) (Key, bool, error) {
	list, err := c.Versions(ctx)
	if err != nil {
		return Key{}, false, err
	}
	run, ok, err := c.Run(ctx)
	if err != nil || !ok {
		return Key{}, false, err
	}
	order, _, err := c.LastOrder(ctx)
	if err != nil {
		return Key{}, false, err
	}
	v := choose(list, run.Run, order)
	if v == nil {
		return Key{}, false, nil
	}
	return v.Key, true, nil
}

// choose applies the protocol's choice to what was read. order may be nil.
func choose(list []Committed, run uint64, order *Order) *Committed {
	standing := make([]protocol.Standing, 0, len(list))
	byKey := make(map[Key]*Committed, len(list))
	for i := range list {
		if list[i].Manifest != nil {
			standing = append(standing, protocol.Standing{Key: list[i].Key, Seq: list[i].Seq})
			byKey[list[i].Key] = &list[i]
		}
	}
	return byKey[protocol.Choose(standing, run, order.rollback())]
}
