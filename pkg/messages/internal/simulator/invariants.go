package simulator

import (
	"time"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// observe checks what the store has just done. Invariants 1 (never torn), 4 (order and
// fence) and 9 (idempotent).
func (w *world) observe(r *request) {
	if r.result.Outcome != protocol.OK || r.intent.Verb != protocol.Put || r.intent.Place.Kind != protocol.KindCommit {
		return
	}
	key, body := r.intent.Place.Key, r.intent.Body
	if body.Class != protocol.ClassManifest {
		w.ended[key] = true
		return
	}
	if w.retired[key] > 0 {
		w.violate("version %s came back after rank buffers of it were freed", key)
	}
	if before, ok := w.committed[key]; ok && before != body.Digest {
		w.violate("version %s has two manifests", key)
	}
	w.committed[key] = body.Digest
	next := protocol.Place{Kind: protocol.KindRun, Key: protocol.Key{Run: key.Run + 1}}
	if _, fenced := w.store.state[next]; fenced {
		w.violate("version %s was committed although run %d was taken", key, key.Run+1)
	}
	for rank, d := range digestsOf(body) {
		it, ok := w.store.read(protocol.Place{Kind: protocol.KindTable, Key: key, Rank: rank}, 0)
		if !ok || it.Body.Digest != d {
			w.violate("version %s was committed without the table of rank %d", key, rank)
		}
	}
}

// checkAssembled: exactly one table of each rank, of one version, as published.
// Invariants 1 and 2.
func (w *world) checkAssembled(key protocol.Key, tables []protocol.Item) {
	if len(tables) != ranks {
		w.violate("version %s was assembled of %d tables", key, len(tables))
	}
	for rank, t := range tables {
		if t.Body.Digest != tableBody(key, rank).Digest {
			w.violate("version %s was assembled with another table of rank %d", key, rank)
		}
	}
}

// checkFree: nobody who may still read the version believes in a lease on it.
// Invariant 7.
func (w *world) checkFree(p *publisher, key protocol.Key) {
	for _, r := range w.readers {
		if r.lease != nil && r.lease.Key == key && r.valid() {
			w.violate("%s frees its buffer of %s while %s reads it", p.lane.name, key, r.name)
		}
	}
}

// checkAcquired: a lease is given only while every rank still holds the version.
// Invariant 7.
func (w *world) checkAcquired(r *reader, key protocol.Key) {
	if w.retired[key] > 0 {
		w.violate("%s has a lease on %s, whose buffers were freed", r.name, key)
	}
}

// checkRead: what was read while the lease held is the version's. Invariants 1 and 7.
func (w *world) checkRead(r *reader, key protocol.Key, rank int, began time.Duration) {
	for _, j := range w.jobs {
		if j.run != key.Run {
			continue
		}
		s := j.ranks[rank].slots[key.Version%slots]
		if s.key != key || s.since > began {
			w.violate("%s read %s from rank %d, and got bytes of %s", r.name, key, rank, s.key)
		}
	}
}

// checkInstall: versions only grow, only those that were committed are installed, and
// what is installed is wholly that version, however little of it was read. Invariants 1
// and 4.
func (w *world) checkInstall(r *reader, key protocol.Key) {
	if !r.serving.Less(key) {
		w.violate("%s goes from %s back to %s", r.name, r.serving, key)
	}
	if _, ok := w.committed[key]; !ok {
		w.violate("%s installs %s, which was never committed", r.name, key)
	}
	for rank, from := range r.staged.written {
		if want := written(key, rank); from != want {
			w.violate("%s installs %s with bytes of %s where rank %d has those of %s", r.name, key, from, rank, want)
		}
	}
}

// checkEnd: a version that was committed and not withdrawn is still there.
func (w *world) checkEnd() {
	for key := range w.committed {
		if _, ok := w.store.state[protocol.Place{Kind: protocol.KindCommit, Key: key}]; !ok && !w.ended[key] {
			w.violate("version %s was committed, not withdrawn, and is gone", key)
		}
	}
}
