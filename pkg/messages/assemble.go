package messages

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/trace"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Assemble reads all that a committed version consists of and checks it against the
// manifest and against itself. A receiver acquires its lease first: what was assembled
// before may have been withdrawn since.
func (c *Control) Assemble(ctx context.Context, key Key) (v *Version, err error) {
	ctx, span := c.span(ctx, "receive", "receive", commitTemplate, c.subj.commit(key), trace.SpanKindClient, key)
	defer func() { endSpan(span, err) }()
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	m := &protocol.Assemble{Key: key, Digests: tableDigests}
	ahead := c.readAhead(ctx, key)
	defer ahead.end()
	perform := func(ctx context.Context, in protocol.Intent) protocol.Result { return ahead.perform(ctx, c, in) }
	if err := c.driveWith(ctx, m, perform, nil); err != nil {
		return nil, assembleError(key, m, err)
	}
	manifest, ok := m.Manifest.Body.Facts.(*Manifest)
	if !ok {
		return nil, fmt.Errorf("assemble version %s: %w", key, ErrMalformed)
	}
	v = &Version{
		Manifest: manifest, Digest: m.Manifest.Body.Digest, Ranks: make([]RankVersion, len(m.Tables)), Headers: m.Manifest.Trace,
	}
	if v.Run, err = c.recordOf(ctx, key.Run); err != nil {
		return nil, fmt.Errorf("assemble version %s: %w", key, err)
	}
	for rank, it := range m.Tables {
		if err := v.addTable(rank, it); err != nil {
			return nil, &RankError{Op: "assemble", Key: key, Ranks: []int{rank}, Err: err}
		}
	}
	if err := c.fetchBlobs(ctx, v, ahead); err != nil {
		return nil, err
	}
	return v, v.check()
}

// tableDigests reads the digests of the tables from a manifest.
func tableDigests(b protocol.Body) ([]Digest, error) {
	m, ok := b.Facts.(*Manifest)
	if !ok {
		return nil, fmt.Errorf("unreadable manifest: %v: %w", b.Facts, ErrMalformed)
	}
	digests := make([]Digest, len(m.Ranks))
	for i := range m.Ranks {
		digests[i] = m.Ranks[i].Table
	}
	return digests, nil
}

func assembleError(key Key, m *protocol.Assemble, err error) error {
	switch {
	case errors.Is(err, ErrConflict):
		return &RankError{Op: "assemble", Key: key, Ranks: []int{m.Wrong}, Err: fmt.Errorf("table %w", ErrContradiction)}
	case len(m.Missing()) > 0 && (errors.Is(err, ErrIncomplete) || errors.Is(err, ErrUnavailable)):
		return &RankError{Op: "assemble", Key: key, Ranks: m.Missing(), Err: fmt.Errorf("tables are missing: %w", errors.Join(ErrIncomplete, err))}
	}
	return fmt.Errorf("assemble version %s: %w", key, err)
}

// addTable compares a table with what the manifest says of it.
func (v *Version) addTable(rank int, it protocol.Item) error {
	t, ok := it.Body.Facts.(*Table)
	if !ok {
		return fmt.Errorf("unreadable table: %v: %w", it.Body.Facts, ErrMalformed)
	}
	want := v.Manifest.Ranks[rank]
	for _, c := range []struct {
		what       string
		have, want any
	}{
		{"world", t.World, v.Manifest.World},
		{"layout", t.Layout.Digest, want.Layout},
		{"endpoint", t.Endpoint.Digest, want.Endpoint},
		{"tile digests", t.Tiles.Digest, want.Tiles},
		{"bytes", t.Nbytes, want.Nbytes},
		{"base", refOrNone(t.Base), refOrNone(v.Manifest.Base)},
	} {
		if c.have != c.want {
			return fmt.Errorf("table: %s is %v, manifest says %v: %w", c.what, c.have, c.want, ErrContradiction)
		}
	}
	v.Ranks[rank] = RankVersion{Table: t, Digests: want}
	return nil
}

// fetchBlobs fills in layouts, endpoints and tile digests: from the caches, from the
// tables themselves, and the rest from the stream in as few reads as it takes.
func (c *Control) fetchBlobs(ctx context.Context, v *Version, from *ahead) error {
	want := newBlobFetch()
	for rank := range v.Ranks {
		c.planLayout(want, v, rank)
		c.plan(want, v, rank)
	}
	want.offer(from)
	if err := c.fetch(ctx, want); err != nil {
		return fmt.Errorf("assemble version %s: %w", v.Manifest.Key, err)
	}
	errs := make([]error, len(v.Ranks))
	eachOf(len(v.Ranks), func(rank int) {
		if err := c.decodeRank(want, v, rank); err != nil {
			errs[rank] = &RankError{Op: "assemble", Key: v.Manifest.Key, Ranks: []int{rank}, Err: err}
		}
	})
	return firstError(errs)
}

// firstError is that of the lowest rank: the same on every receiver.
func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// fetchLayouts fills in layouts only.
func (c *Control) fetchLayouts(ctx context.Context, v *Version) error {
	want := newBlobFetch()
	for rank := range v.Ranks {
		c.planLayout(want, v, rank)
	}
	if err := c.fetch(ctx, want); err != nil {
		return err
	}
	for rank := range v.Ranks {
		if err := c.decodeRankLayout(want, &v.Ranks[rank]); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return nil
}

func (c *Control) planLayout(want *blobFetch, v *Version, rank int) {
	t, run := v.Ranks[rank].Table, v.Manifest.Key.Run
	if l, ok := c.layouts.get(t.Layout.Digest.String()); ok {
		v.Ranks[rank].Layout, v.Ranks[rank].known = l.Layout, l
		return
	}
	want.add(t.Layout, func(i int) string { return c.subj.blob(run, t.Layout.Digest, i) })
}

// plan notes which blobs of a rank must be read, but for its layout.
func (c *Control) plan(want *blobFetch, v *Version, rank int) {
	t, key := v.Ranks[rank].Table, v.Manifest.Key
	r := &v.Ranks[rank]
	if e, ok := c.endpoints.get(t.Endpoint.Digest.String()); ok {
		r.Endpoint = e
	} else {
		want.add(t.Endpoint, func(i int) string { return c.subj.blob(key.Run, t.Endpoint.Digest, i) })
	}
	if !t.Tiles.Digest.IsZero() {
		want.add(t.Tiles, func(i int) string { return c.subj.tiles(key, rank, i) })
	}
}

func (c *Control) decodeRankLayout(got *blobFetch, r *RankVersion) error {
	if r.Layout != nil {
		return nil
	}
	l, err := decodeLayout(got.bytes(r.Table.Layout), &c.catalogues)
	if err != nil {
		return err
	}
	r.Layout, r.known = l, knownLayout{l, l.Nbytes(), l.NTiles()}
	c.layouts.put(r.Table.Layout.Digest.String(), r.known)
	return nil
}

// decodeRank decodes what was read for a rank.
func (c *Control) decodeRank(got *blobFetch, v *Version, rank int) error {
	r := &v.Ranks[rank]
	if err := c.decodeRankLayout(got, r); err != nil {
		return err
	}
	if r.Endpoint == nil {
		e, err := DecodeEndpoint(got.bytes(r.Table.Endpoint))
		if err != nil {
			return err
		}
		r.Endpoint = e
		c.endpoints.put(r.Table.Endpoint.Digest.String(), e)
	}
	if r.Table.Tiles.Digest.IsZero() {
		return nil
	}
	var err error
	if r.Tiles = got.tiles[r.Table.Tiles.Digest]; r.Tiles == nil {
		r.Tiles, err = DecodeTiles(got.bytes(r.Table.Tiles))
	}
	return err
}

// check proves that the parts of a version fit each other.
func (v *Version) check() error {
	for rank := range v.Ranks {
		if err := v.checkRank(rank); err != nil {
			return &RankError{Op: "assemble", Key: v.Manifest.Key, Ranks: []int{rank}, Err: err}
		}
	}
	if err := checkVersionGroups(v.Ranks); err != nil {
		return fmt.Errorf("assemble version %s: %w", v.Manifest.Key, err)
	}
	return nil
}

func (v *Version) checkRank(rank int) error {
	r := &v.Ranks[rank]
	if r.Layout.Rank != rank || r.Endpoint.Rank != rank {
		return fmt.Errorf("layout is of rank %d, endpoint of rank %d: %w", r.Layout.Rank, r.Endpoint.Rank, ErrContradiction)
	}
	if n := r.known.nbytes; n != r.Table.Nbytes {
		return fmt.Errorf("layout has %d bytes, table says %d: %w", n, r.Table.Nbytes, ErrContradiction)
	}
	if n := len(r.Table.Changed); n > 0 && int(r.Table.Changed[n-1]) >= len(r.Layout.Names) {
		return fmt.Errorf("changed source %d of %d: %w", r.Table.Changed[n-1], len(r.Layout.Names), ErrContradiction)
	}
	if r.Tiles != nil && len(r.Tiles.Digests) != r.known.ntiles {
		return fmt.Errorf("%d tile digests, layout has %d tiles: %w", len(r.Tiles.Digests), r.known.ntiles, ErrContradiction)
	}
	if r.Tiles != nil {
		if err := r.Tiles.checkBare(r.Layout); err != nil {
			return err
		}
	}
	return matchRegions(r.Layout, r.Endpoint, r.Table.Regions)
}
