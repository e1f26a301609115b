package messages

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Publish stores one rank's part of a version: first the blobs that are not there yet,
// then the table. It may be repeated. ErrConflict says that this rank's table is there
// with another content, e.g. of an earlier life with another endpoint: the version
// can only be abandoned then.
func (c *Control) Publish(ctx context.Context, p Publication) (err error) {
	subject := c.subj.table(p.Key, p.Rank)
	ctx, span := c.span(ctx, "publish", "send", tableTemplate, subject, trace.SpanKindProducer, p.Key)
	defer func() { endSpan(span, err) }()
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	table, blobs, err := c.encodeTraced(ctx, &p)
	if err != nil {
		return fmt.Errorf("publish version %s rank %d: %w", p.Key, p.Rank, err)
	}
	if err := c.storeBlobs(ctx, blobs); err != nil {
		return fmt.Errorf("publish version %s rank %d: %w", p.Key, p.Rank, err)
	}
	body, err := EncodeTable(table)
	if err != nil {
		return fmt.Errorf("publish version %s rank %d: %w", p.Key, p.Rank, err)
	}
	put := &protocol.PutOnce{
		Place: protocol.Place{Kind: protocol.KindTable, Key: p.Key, Rank: p.Rank},
		Body:  protocol.Body{Class: protocol.ClassTable, Digest: protocol.Sum(body), Bytes: body},
	}
	if err := c.drive(ctx, put); err != nil {
		return fmt.Errorf("publish version %s rank %d: store the table: %w", p.Key, p.Rank, err)
	}
	return nil
}

// chunk is one message of a blob.
type chunk struct {
	subject string
	body    []byte
	forever bool // outlives the stream's age limit
}

// encodeTraced is encodePublication under a span of its own: for a large layout it takes as long as the upload.
func (c *Control) encodeTraced(ctx context.Context, p *Publication) (t *Table, chunks []chunk, err error) {
	_, span := c.tracer.Start(ctx, "encode")
	defer func() { endSpan(span, err) }()
	return c.encodePublication(p)
}

// encodePublication makes the table, and the chunks that must be stored before it.
func (c *Control) encodePublication(p *Publication) (*Table, []chunk, error) {
	if err := p.check(); err != nil {
		return nil, nil, err
	}
	t := &Table{
		Model: c.cfg.Model, Key: p.Key, Rank: p.Rank, World: p.World, Regions: p.Regions, Base: p.Base,
		Grouped: len(p.Layout.Groups) > 0,
	}
	layout, known, err := c.encoded.get(p.Layout)
	if err != nil {
		return nil, nil, err
	}
	// After the layout was found valid: the tiles are compared along its boxes.
	if t.Changed, err = p.changed(); err != nil {
		return nil, nil, err
	}
	endpoint, err := EncodeEndpoint(p.Endpoint)
	if err != nil {
		return nil, nil, err
	}
	t.Nbytes = known.nbytes
	t.Layout = blobOf(layout)
	chunks := c.appendRunBlob(nil, p.Key.Run, t.Layout.Digest, layout)
	t.Endpoint = blobOf(endpoint)
	if len(endpoint) <= inlineBlob {
		t.Endpoint.Inline = endpoint
	} else {
		chunks = c.appendRunBlob(chunks, p.Key.Run, t.Endpoint.Digest, endpoint)
	}
	chunks, err = c.appendTiles(chunks, p, t)
	return t, chunks, err
}

// appendTiles puts tile digests into the table, or beside it when they are many.
func (c *Control) appendTiles(chunks []chunk, p *Publication, t *Table) ([]chunk, error) {
	if p.Tiles == nil {
		return chunks, nil
	}
	if err := p.Tiles.checkBare(p.Layout); err != nil {
		return nil, err
	}
	tiles, err := EncodeTiles(p.Tiles)
	if err != nil {
		return nil, err
	}
	t.Tiles = blobOf(tiles)
	if len(tiles) <= inlineBlob {
		t.Tiles.Inline = tiles
		return chunks, nil
	}
	for i, body := range split(tiles) {
		chunks = append(chunks, chunk{subject: c.subj.tiles(p.Key, p.Rank, i), body: body})
	}
	return chunks, nil
}

func blobOf(b []byte) Blob { return Blob{Digest: protocol.Sum(b), Nbytes: int64(len(b))} }

// encodedLayout remembers the encoding of one layout by its address: a publisher's
// layout is the same for all versions, and takes longer to encode than all else.
type encodedLayout struct {
	mu    sync.Mutex
	of    *Layout
	blob  []byte
	known knownLayout
}

func (e *encodedLayout) get(l *Layout) (blob []byte, known knownLayout, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of != l {
		blob, err := EncodeLayout(l)
		if err != nil {
			return nil, knownLayout{}, err
		}
		e.of, e.blob, e.known = l, blob, knownLayout{l, l.Nbytes(), l.NTiles()}
	}
	return e.blob, e.known, nil
}

func (c *Control) appendRunBlob(chunks []chunk, run uint64, d Digest, blob []byte) []chunk {
	for i, body := range split(blob) {
		chunks = append(chunks, chunk{subject: c.subj.blob(run, d, i), body: body, forever: true})
	}
	return chunks
}

// split cuts a blob into chunks; all but the last have ChunkSize bytes.
func split(blob []byte) [][]byte {
	var chunks [][]byte
	for len(blob) > ChunkSize {
		chunks = append(chunks, blob[:ChunkSize])
		blob = blob[ChunkSize:]
	}
	return append(chunks, blob)
}

func (p *Publication) check() error {
	switch {
	case p.Layout == nil || p.Endpoint == nil:
		return errors.New("layout and endpoint are required")
	case p.Layout.Rank != p.Rank || p.Endpoint.Rank != p.Rank:
		return fmt.Errorf("layout is of rank %d, endpoint of rank %d", p.Layout.Rank, p.Endpoint.Rank)
	}
	return matchRegions(p.Layout, p.Endpoint, p.Regions)
}

// matchRegions checks that an endpoint serves the regions that a layout lies in: those
// that the map of the table names, or those of the same numbers.
func matchRegions(l *Layout, e *Endpoint, regions []uint32) error {
	if regions == nil && len(l.Regions) > len(e.Regions) || regions != nil && len(regions) != len(l.Regions) {
		return malformed(tableSchema, "nregions", "%d regions mapped, the layout has %d, the endpoint %d", len(regions), len(l.Regions), len(e.Regions))
	}
	for i, nbytes := range l.Regions {
		at := i
		if regions != nil {
			at = int(regions[i])
		}
		if at >= len(e.Regions) || e.Regions[at].Nbytes < nbytes {
			return malformed(tableSchema, "regions", "region %d of the layout has %d bytes, more than region %d of the endpoint's %d", i, nbytes, at, len(e.Regions))
		}
	}
	return nil
}

// blobWindow is how many chunks of one publication are in flight.
const blobWindow = 8

// storeBlobs stores the chunks that this process has not yet seen stored.
func (c *Control) storeBlobs(ctx context.Context, chunks []chunk) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(blobWindow)
	for _, ch := range chunks {
		if _, known := c.stored.get(ch.subject); known && ch.forever {
			continue
		}
		g.Go(func() error { return c.storeChunk(ctx, ch) })
	}
	return g.Wait()
}

// storeChunk writes a chunk once. One that is there must be equal: its subject is made
// of the blob's digest, or of its rank and version.
func (c *Control) storeChunk(ctx context.Context, ch chunk) error {
	var last error
	for {
		m := &nats.Msg{Subject: ch.subject, Data: ch.body, Header: nats.Header{}}
		m.Header.Set(hdrExpectSeq, "0")
		if ch.forever {
			m.Header.Set(hdrTTL, ttlNever)
		}
		_, err := c.store(ctx, m)
		var refused *apiError
		if errors.As(err, &refused) && (refused.ErrCode == codeWrongLastSequence || isTaken(refused)) {
			err = c.compareChunk(ctx, ch)
		}
		res := result(err)
		switch {
		case err == nil:
			c.stored.put(ch.subject, true)
			return nil
		case res.Outcome == protocol.Refused, errors.Is(err, ErrConflict):
			return fmt.Errorf("store %s (%d bytes): %w", ch.subject, len(ch.body), err)
		}
		last = err
		pause(ctx, retryDelay)
		if ctx.Err() != nil {
			return fmt.Errorf("store %s (%d bytes): %w", ch.subject, len(ch.body), gaveUp(ctx, last))
		}
	}
}

// errGone says that a chunk that was there is not there any more.
var errGone = errors.New("chunk is gone again")

func (c *Control) compareChunk(ctx context.Context, ch chunk) error {
	m, err := c.leaderGet(ctx, c.subj.stream(), getQuery{LastFor: ch.subject})
	switch {
	case err != nil:
		return err
	case m == nil:
		return errGone
	case m.Digest != protocol.Sum(ch.body):
		return fmt.Errorf("%w: the stored chunk has sequence %s", ErrConflict, strconv.FormatUint(m.Seq, 10))
	}
	return nil
}
