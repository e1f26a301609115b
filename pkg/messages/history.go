package messages

import (
	"context"
	"fmt"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// A server that lost its data begins a new history: the next job gets run 1 again, and a
// receiver that still serves version 5.50 of the old history must not take 1.3 for older
// news of its own. It does not go there by itself either: versions only grow, and to a
// receiver that is connected to the wrong server it would look the same. It says so, and
// an operator leads it over with the order that leads back anywhere.
//
// What a history is can be told without guessing: run numbers only grow within one, a
// run's record has a random nonce and never changes, a manifest is written once, and so
// is an order, whose sequence is beyond that of all orders before it.

// anchor is what a receiver knows of the history that the version it serves came from.
// Zero is nothing: the version was served before this process began.
type anchor struct {
	key      Key // the version
	nonce    [16]byte
	manifest Digest
}

// differs says whether a version of the same name is another one.
func (a anchor) differs(v *Committed) bool { return a.key == v.Key && a.manifest != v.Digest }

// foreign says whether the version that is served can't be of the history that next, run
// and order were read of. It forgets what it knows of the other history's orders and runs.
func (w *watcher) foreign(next *Committed, run RunRecord, order *Order) bool {
	known := !w.serving.key.IsZero()
	foreign := run.Run < w.last.Run ||
		known && run.Run == w.serving.key.Run && run.Nonce != w.serving.nonce ||
		known && w.serving.differs(next) ||
		order != nil && order.Seq < w.followed
	if foreign {
		w.followed = 0
		w.c.runs.forget()
	}
	return foreign
}

// ledInto says whether an order of another history leads a receiver there: to its target,
// or to what was committed after it. Any order does, since all are younger than the history.
func (w *watcher) ledInto(next *Committed, order *Order) bool {
	return order != nil && next.Key != w.last && (order.To == next.Key || next.Seq > order.Seq)
}

// Stranded tells of a version that is committed, is what receivers should serve, and is not
// newer than what this one serves.
type Stranded struct {
	Serving Key
	Newest  Key       // that receivers should serve
	Run     RunRecord // the newest run
	Foreign bool      // Serving can't be of this server's history
}

// String says what is wrong, and what an operator can do.
func (s Stranded) String() string {
	why := "the server has lost its data since, or the trainer has gone back"
	if s.Foreign {
		why = fmt.Sprintf("the server has lost its data, or is another one: its newest run is %d, of job %q", s.Run.Run, s.Run.Job)
	}
	return fmt.Sprintf("version %s is committed and not newer than %s, which is served: %s. It is not followed until an operator orders it (refitctl rollback %s)",
		s.Newest, s.Serving, why, s.Newest)
}

// strand tells of a version that can't be followed, once. That an older version is the
// newest proves nothing by itself: the replica may lag, or the newer one was withdrawn. So
// the leader is asked for it, and has neither its manifest nor its end.
func (w *watcher) strand(ctx context.Context, next *Committed, run RunRecord, foreign bool) error {
	if next.Key == w.last && !foreign || w.told == next.Seq || w.stranded == nil {
		return nil
	}
	if !foreign {
		ctx, cancel := w.c.deadline(ctx)
		defer cancel()
		place := protocol.Place{Kind: protocol.KindCommit, Key: w.last}
		it, err := w.c.readOne(ctx, protocol.Intent{Verb: protocol.ReadLeader, Place: place})
		if err != nil || it != nil {
			return err
		}
	}
	w.told = next.Seq
	w.stranded(Stranded{Serving: w.last, Newest: next.Key, Run: run, Foreign: foreign})
	return nil
}
