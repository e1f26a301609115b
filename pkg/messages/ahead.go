package messages

import (
	"context"

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
		msgs, err := c.multiGet(ctx, c.subj.stream(), []string{c.subj.version(key)})
		if err != nil {
			return
		}
		a.found = make(map[string]*stored, len(msgs))
		for i := range msgs {
			a.found[msgs[i].Subject] = &msgs[i]
		}
	}()
	return a
}

// end waits until the read is over, so that it outlives nobody.
func (a *ahead) end() {
	a.stop()
	<-a.done
}

// take waits for the read, and takes out what it brought of these subjects.
func (a *ahead) take(subjects []string) []stored {
	<-a.done
	var got []stored
	for _, s := range subjects {
		if m := a.found[s]; m != nil {
			got = append(got, *m)
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
