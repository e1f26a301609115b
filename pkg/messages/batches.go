package messages

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// batches receives the answers to direct gets, each of which is many messages and an
// end mark. All share one subscription, which is made once: a subscription per request
// costs the client a channel of half a megabyte and the server two messages. What
// arrives is hashed and decoded at once, beside the client's reader, while more is on
// its way.
type batches struct {
	mu   sync.Mutex
	line *line // that new requests are answered on; nil: none yet
	last uint64
	open map[string]*batch // by inbox
}

// line is a subscription to all inboxes below one prefix.
type line struct {
	sub     *nats.Subscription
	prefix  string
	pending int // answers that are under way
}

// batch is one answer that is under way.
type batch struct {
	on    *line
	inbox string
	each  func(*stored) // what is done with each message when it comes; nil: nothing
	msgs  []*stored
	came  atomic.Int64   // messages so far
	work  sync.WaitGroup // of what is done with messages; added to only while the batch is open
	err   error
	done  chan<- *batch // told when msgs and err were set for the last time; it has room
}

// begin makes an inbox for one answer. Each of its messages is given to each, several at
// once and in any order; when it is complete done is told, which must have room.
func (b *batches) begin(nc *nats.Conn, each func(*stored), done chan<- *batch) (*batch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.line == nil {
		prefix := nc.NewInbox() + "."
		sub, err := nc.Subscribe(prefix+"*", b.receive)
		if err != nil {
			return nil, fmt.Errorf("subscribe to %s*: %w", prefix, err)
		}
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			return nil, fmt.Errorf("lift the limits of %s*: %w", prefix, err)
		}
		b.line = &line{sub: sub, prefix: prefix}
	}
	if b.open == nil {
		b.open = make(map[string]*batch)
	}
	b.last++
	answer := &batch{on: b.line, inbox: b.line.prefix + strconv.FormatUint(b.last, 36), each: each, done: done}
	b.open[answer.inbox] = answer
	b.line.pending++
	return answer, nil
}

// end forgets an answer, and waits for what is still done with its messages. One that did
// not come in time may be the fault of the subscription, as when the server has refused
// it: the next request makes another, and this one goes with its last answer.
func (b *batches) end(answer *batch, late bool) {
	defer answer.work.Wait() // it was forgotten: nothing is added any more
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, answer.inbox)
	answer.on.pending--
	if late && b.line == answer.on {
		b.line = nil
	}
	if b.line != answer.on && answer.on.pending == 0 {
		_ = answer.on.sub.Unsubscribe() // fails only when the connection is gone, and the subscription with it
	}
}

// close gives up the subscription; answers that are under way are never completed.
func (b *batches) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.line != nil {
		_ = b.line.sub.Unsubscribe() // as in end
		b.line = nil
	}
}

// receive takes one message of one answer. The client calls it for one at a time.
func (b *batches) receive(m *nats.Msg) {
	b.mu.Lock()
	answer := b.open[m.Subject]
	if answer != nil {
		answer.work.Add(1)
	}
	b.mu.Unlock()
	if answer == nil {
		return // nobody waits for it any more
	}
	more, err := answer.add(m)
	if more {
		return
	}
	b.mu.Lock()
	_, open := b.open[m.Subject]
	delete(b.open, m.Subject)
	b.mu.Unlock()
	if open { // not given up in the meantime
		answer.err = err
		answer.done <- answer
	}
}

// add takes one message; false when it was the last. It ends one unit of work, now or
// when all is done that the message gives to do.
func (a *batch) add(m *nats.Msg) (more bool, err error) {
	got, err := parseDirect(m)
	if got == nil {
		a.work.Done()
		return false, err
	}
	a.msgs = append(a.msgs, got)
	a.came.Add(1)
	if a.each == nil && len(got.Data) < hashAside {
		got.Digest = protocol.Sum(got.Data)
		a.work.Done()
		return true, nil
	}
	go func() {
		defer a.work.Done()
		got.Digest = protocol.Sum(got.Data)
		if a.each != nil {
			a.each(got)
		}
	}()
	return true, nil
}

// hashAside is from how many bytes on a message is worth a goroutine to hash it.
const hashAside = 4 << 10

// parseDirect reads one message of an answer, but for its digest; nil at the end of the
// answer, or with the error that ends it.
func parseDirect(m *nats.Msg) (*stored, error) {
	switch status := m.Header.Get("Status"); status {
	case "":
	case "204", "404": // end of batch, nothing there
		return nil, nil
	case "503":
		return nil, fmt.Errorf("no response from stream: %w", nats.ErrNoResponders)
	case "413":
		return nil, errTooMany
	default:
		return nil, fmt.Errorf("direct get: status %s %s", status, m.Header.Get("Description"))
	}
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read the sequence of %s: %w", m.Header.Get("Nats-Subject"), err)
	}
	at, _ := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp")) // for display only
	return &stored{Subject: m.Header.Get("Nats-Subject"), Seq: seq, Header: m.Header, Data: m.Data, Time: at}, nil
}
