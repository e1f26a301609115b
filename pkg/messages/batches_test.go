package messages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// direct is one message of an answer to a direct get, as the server makes it.
func direct(inbox string, seq int, data []byte) *nats.Msg {
	m := nats.NewMsg(inbox)
	m.Header.Set("Nats-Subject", fmt.Sprint("subject.", seq))
	m.Header.Set("Nats-Sequence", fmt.Sprint(seq))
	m.Data = data
	return m
}

// status is a message that carries nothing but a status.
func status(inbox, code string) *nats.Msg {
	m := nats.NewMsg(inbox)
	m.Header.Set("Status", code)
	return m
}

// under makes a line of answers that no connection feeds: the test calls receive.
func under(each func(*stored)) (b *batches, answer *batch, done <-chan *batch) {
	on := &line{sub: &nats.Subscription{}, pending: 1}
	complete := make(chan *batch, 1)
	answer = &batch{on: on, inbox: "inbox", each: each, done: complete}
	b = &batches{line: on, open: map[string]*batch{answer.inbox: answer}}
	return b, answer, complete
}

// TestMessagesAreHashedAndGivenOut: small and large ones, with and without somebody who
// wants them; all of it is done when the answer is complete.
func TestMessagesAreHashedAndGivenOut(t *testing.T) {
	t.Parallel()
	for _, wanted := range []bool{false, true} {
		var given atomic.Int64
		var each func(*stored)
		if wanted {
			each = func(m *stored) {
				if m.Digest != protocol.Sum(m.Data) {
					t.Error("a message was given out before it was hashed")
				}
				given.Add(1)
			}
		}
		b, answer, done := under(each)
		sizes := []int{0, 10, hashAside - 1, hashAside, 10 * hashAside}
		for i, n := range sizes {
			b.receive(direct(answer.inbox, i+1, make([]byte, n)))
		}
		b.receive(status(answer.inbox, "204"))
		<-done
		answer.work.Wait()
		for i, m := range answer.msgs {
			if m.Seq != uint64(i+1) || len(m.Data) != sizes[i] || m.Digest != protocol.Sum(m.Data) {
				t.Errorf("message %d: sequence %d, %d bytes, digest %s", i, m.Seq, len(m.Data), m.Digest.Short())
			}
		}
		if n := given.Load(); len(answer.msgs) != len(sizes) || wanted && n != int64(len(sizes)) {
			t.Errorf("%d messages came, %d were given out, %d were sent", len(answer.msgs), n, len(sizes))
		}
	}
}

// TestGivenUpAnswersOutliveNobody: whoever gives an answer up waits for what is done
// with its messages, and messages that come later are nobody's.
func TestGivenUpAnswersOutliveNobody(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	var finished atomic.Bool
	b, answer, _ := under(func(*stored) {
		close(begun)
		<-goOn
		finished.Store(true)
	})
	b.receive(direct(answer.inbox, 1, []byte("x")))
	<-begun
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.end(answer, false)
	}()
	select {
	case <-ended:
		t.Error("given up, and its message is still worked on")
	default:
	}
	close(goOn)
	<-ended
	if !finished.Load() {
		t.Error("given up before the work was over")
	}
	b.receive(direct(answer.inbox, 2, []byte("y"))) // would close begun twice
	if len(answer.msgs) != 1 {
		t.Errorf("%d messages of an answer that was given up after one", len(answer.msgs))
	}
}

// TestStatusesEndAnswers: what the server says instead of a message.
func TestStatusesEndAnswers(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]error{"204": nil, "404": nil, "503": nats.ErrNoResponders, "413": errTooMany} {
		b, answer, done := under(nil)
		b.receive(status(answer.inbox, code))
		<-done
		answer.work.Wait()
		if !errors.Is(answer.err, want) || want == nil && answer.err != nil {
			t.Errorf("status %s: %v, want %v", code, answer.err, want)
		}
	}
	b, answer, done := under(nil)
	b.receive(direct(answer.inbox, 1, nil))
	m := direct(answer.inbox, 2, nil)
	m.Header.Set("Nats-Sequence", "many")
	b.receive(m)
	<-done
	if answer.err == nil {
		t.Error("a sequence that is no number was accepted")
	}
}

// TestDigestsAreUnpackedAsOneByOne compares with the plain loop, at every remainder.
func TestDigestsAreUnpackedAsOneByOne(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	for n := range 40 {
		var packed []byte
		want := make([]uint64, n)
		for i := range want {
			want[i] = rng.Uint64()
			packed = binary.LittleEndian.AppendUint64(packed, want[i])
		}
		if got := unpackDigests(packed); !slices.Equal(got, want) {
			t.Fatalf("%d digests: %x became %x", n, want, got)
		}
	}
}
