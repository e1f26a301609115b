package messages

import (
	"context"
	"strings"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// ahead is a read of all that lies below a version, tables and tile digests, begun
// before anybody knows what the version consists of. It saves an assembly two round
// trips. It is no more than a read from some replica: what it brings is judged by the
// manifest like any other, and what it lacks is asked for again.
type ahead struct {
	done  chan struct{}
	stop  context.CancelFunc
	found map[string]*stored // by subject; after done
}

// readAhead begins to read.
func (c *Control) readAhead(ctx context.Context, key Key) *ahead {
	ctx, stop := context.WithCancel(ctx)
	a := &ahead{done: make(chan struct{}), stop: stop}
	go func() {
		defer close(a.done)
		// An error says that there is nothing to use: too many subjects for one answer, no
		// leader. Those who need the messages ask for them, and get to hear of it.
		query := getQuery{Multi: []string{c.subj.version(key)}, MaxBytes: multiBytes}
		msgs, err := c.batch(ctx, c.subj.stream(), query, c.decodeAhead)
		if err != nil {
			return
		}
		a.found = make(map[string]*stored, len(msgs))
		for _, m := range msgs {
			a.found[m.Subject] = m
		}
	}()
	return a
}

// decodeAhead decodes a message of a version as soon as it comes: while others are on
// their way there is time for it, and afterwards everybody waits for it. Whether the
// message is the version's is found out later, by its digest; one that can't be decoded
// is left to whoever needs it and can say whose it is.
func (c *Control) decodeAhead(m *stored) {
	place, ok := c.placeOf(m.Subject)
	switch {
	case ok && place.Kind == protocol.KindTable:
		if it, ok := c.item(m); ok {
			m.Decoded = it
		}
	case !ok && strings.HasSuffix(m.Subject, ".0") && len(m.Data) < ChunkSize: // a whole blob: all chunks but the last are of full size
		if t, err := DecodeTiles(m.Data); err == nil {
			m.Decoded = t
		}
	}
}

// end waits until the read is over, so that it outlives nobody.
func (a *ahead) end() {
	a.stop()
	<-a.done
}

// take waits for the read, and takes out what it brought of these subjects.
func (a *ahead) take(subjects []string) []*stored {
	<-a.done
	var got []*stored
	for _, s := range subjects {
		if m := a.found[s]; m != nil {
			got = append(got, m)
			delete(a.found, s)
		}
	}
	return got
}

// perform answers reads from what was read ahead, as far as that has anything, and
// performs all other intents.
func (a *ahead) perform(ctx context.Context, c *Control, in protocol.Intent) protocol.Result {
	if in.Verb != protocol.Read {
		return c.perform(ctx, in)
	}
	got := a.take(c.subjectsOf(in.Places))
	if len(got) == 0 {
		return c.perform(ctx, in)
	}
	return protocol.Result{Outcome: protocol.OK, Items: c.items(got)}
}
