package messages

import (
	"context"
	"fmt"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// blobFetch gathers blobs, each once however many ranks refer to it.
type blobFetch struct {
	have  map[Digest][]byte
	tiles map[Digest]*Tiles // of what was read ahead, decoded
	want  map[Digest]*wantedBlob
}

type wantedBlob struct {
	blob     Blob
	subjects []string
	chunks   []*stored // by chunk; nil: not read yet
}

func newBlobFetch() *blobFetch {
	return &blobFetch{have: make(map[Digest][]byte), tiles: make(map[Digest]*Tiles), want: make(map[Digest]*wantedBlob)}
}

// add notes a blob whose chunk i lies at subject(i), unless its bytes ride in the table.
func (f *blobFetch) add(b Blob, subject func(i int) string) {
	if b.Inline != nil {
		f.have[b.Digest] = b.Inline
		return
	}
	if f.have[b.Digest] != nil || f.want[b.Digest] != nil {
		return
	}
	w := &wantedBlob{blob: b}
	for i := range (b.Nbytes + ChunkSize - 1) / ChunkSize {
		w.subjects = append(w.subjects, subject(int(i)))
	}
	w.chunks = make([]*stored, len(w.subjects))
	f.want[b.Digest] = w
}

// bytes are the bytes of a blob that was fetched.
func (f *blobFetch) bytes(b Blob) []byte { return f.have[b.Digest] }

// missing lists the subjects that have not been read, and whose chunk each is.
func (f *blobFetch) missing() (subjects []string, owner map[string]**stored) {
	owner = make(map[string]**stored)
	for _, w := range f.want {
		for i, s := range w.subjects {
			if w.chunks[i] == nil {
				subjects = append(subjects, s)
				owner[s] = &w.chunks[i]
			}
		}
	}
	return subjects, owner
}

// fetch reads all wanted blobs. Replicas may lag, so it asks them again for a while,
// then the leader, until ctx or the protocol's patience ends.
func (c *Control) fetch(ctx context.Context, f *blobFetch) error {
	began := c.now()
	for {
		subjects, owner := f.missing()
		if len(subjects) == 0 {
			return f.join()
		}
		waited := c.now() - began
		if waited > protocol.GiveUpAfter {
			return fmt.Errorf("%d blob chunks are missing, among them %s: %w", len(subjects), subjects[0], ErrIncomplete)
		}
		msgs, err := c.readChunks(ctx, subjects, waited > protocol.AskLeaderAfter)
		if err != nil && result(err).Outcome == protocol.Refused {
			return fmt.Errorf("read blobs: %w", err)
		}
		fill(owner, msgs)
		if len(msgs) < len(subjects) {
			pause(ctx, lagDelay)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("read %d blob chunks: %w", len(subjects), gaveUp(ctx, err))
		}
	}
}

// offer takes what was read ahead.
func (f *blobFetch) offer(from *ahead) {
	if len(f.want) > 0 {
		subjects, owner := f.missing()
		fill(owner, from.take(subjects))
	}
}

func fill(owner map[string]**stored, msgs []*stored) {
	for _, m := range msgs {
		if slot := owner[m.Subject]; slot != nil {
			*slot = m
		}
	}
}

// lagDelay is how long a lagging replica is given before it is asked again.
const lagDelay = 15 * time.Millisecond

func (c *Control) readChunks(ctx context.Context, subjects []string, leader bool) ([]*stored, error) {
	if !leader {
		return c.readAll(ctx, c.subj.stream(), subjects)
	}
	var msgs []*stored
	for _, s := range subjects {
		m, err := c.leaderGet(ctx, c.subj.stream(), getQuery{LastFor: s})
		if err != nil {
			return msgs, err
		}
		if m != nil {
			msgs = append(msgs, m)
		}
	}
	return msgs, nil
}

// join puts the chunks together and checks length and digest. A blob of one chunk has
// the digest that its message was found to have when it came.
func (f *blobFetch) join() error {
	for d, w := range f.want {
		nbytes := int64(0)
		for _, part := range w.chunks {
			nbytes += int64(len(part.Data))
		}
		whole, digest := w.chunks[0].Data, w.chunks[0].Digest
		if len(w.chunks) > 1 && nbytes == w.blob.Nbytes {
			whole = make([]byte, 0, nbytes)
			for _, part := range w.chunks {
				whole = append(whole, part.Data...)
			}
			digest = protocol.Sum(whole)
		} else if t, ok := w.chunks[0].Decoded.(*Tiles); ok {
			f.tiles[d] = t
		}
		if nbytes != w.blob.Nbytes || digest != d {
			return malformed("drydock.blob", "digest", "%s: %d bytes of %d do not have this digest", w.subjects[0], nbytes, w.blob.Nbytes)
		}
		f.have[d] = whole
		delete(f.want, d)
	}
	return nil
}
