package simulator

import (
	"fmt"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// reader is one receiver: it follows the newest version, reads its bytes under a
// lease, and installs it. What it serves survives its crash.
type reader struct {
	w       *world
	name    string
	main    *lane
	renew   *lane
	serving protocol.Key
	arena   content // what is served
	staged  content // what is being staged
	lives   int
	lease   *protocol.Renewal // nil: none
	lost    bool
}

// content says of an arena which exact version it holds, and of each rank's bytes the
// version that they were last changed in.
type content struct {
	ref     protocol.Ref
	written [ranks]protocol.Key
	upon    bool // staged as a difference: what did not change was copied, not read
}

func newReader(w *world, i int) *reader {
	r := &reader{w: w, name: fmt.Sprintf("reader-%d", i)}
	r.main = w.addLane(r.name)
	r.renew = &lane{name: r.name + "/renew", clock: r.main.clock}
	w.lanes = append(w.lanes, r.renew)
	r.main.perform = w.mutation.perform
	return r
}

func (r *reader) crash() {
	r.w.note("%-14s crashes and starts again", r.name)
	r.w.crash(r.main)
	r.w.crash(r.renew)
	r.lease = nil
	r.lives++
	r.look()
}

func (r *reader) now() time.Duration { return r.main.clock.at(r.w.now) }

// look reads what is committed, from any replica.
func (r *reader) look() {
	var places []protocol.Place
	for run := range uint64(jobs) {
		for v := range uint64(versions) {
			places = append(places, protocol.Place{Kind: protocol.KindCommit, Key: protocol.Key{Run: run + 1, Version: v + 1}})
		}
	}
	read := &once{in: protocol.Intent{Verb: protocol.Read, Places: places}}
	r.w.run(r.main, read, func(error) {
		var standing []protocol.Standing
		for _, it := range read.res.Items {
			if it.Body.Class == protocol.ClassManifest {
				standing = append(standing, protocol.Standing{Key: it.Place.Key, Seq: it.Seq})
			}
		}
		next := protocol.Choose(standing, 0, protocol.Rollback{})
		if !protocol.MayInstall(r.serving, next, protocol.Rollback{}, 0) {
			r.w.sleep(r.main, 3*time.Second, r.look)
			return
		}
		r.acquire(next)
	})
}

func (r *reader) acquire(key protocol.Key) {
	holder := protocol.Sum(fmt.Append(nil, r.name, r.lives, r.w.steps))
	body := protocol.Body{Class: protocol.ClassLease, Digest: holder}
	copy(body.Holder[:], holder[:])
	m := &protocol.Acquire{Key: key, Receiver: r.name, Lease: body, TTL: leaseTTL, Margin: leaseTTL / 10}
	r.w.run(r.main, r.w.mutation.acquire(m), func(err error) {
		if err != nil {
			r.w.note("%-14s does not get %s: %v", r.name, key, err)
			r.w.sleep(r.main, 100*time.Millisecond, r.look)
			return
		}
		r.w.checkAcquired(r, key)
		r.lost = false
		r.lease = &protocol.Renewal{
			Key: key, Receiver: r.name, Lease: body, TTL: leaseTTL, Margin: leaseTTL / 10, Seq: m.Seq, Since: m.Since,
		}
		r.keep(r.lease)
		r.assemble(key)
	})
}

// keep renews the lease on its own lane.
func (r *reader) keep(lease *protocol.Renewal) {
	due := lease.Due() - r.now()
	r.w.sleep(r.renew, max(due, 0), func() {
		r.w.run(r.renew, lease, func(err error) {
			if err != nil {
				r.w.note("%-14s loses its lease on %s", r.name, lease.Key)
				r.lost = true
				return
			}
			r.keep(lease)
		})
	})
}

func (r *reader) valid() bool {
	return r.lease != nil && !r.lost && (r.lease.Valid(r.now()) || r.w.mutation.ClockIgnored)
}

func (r *reader) assemble(key protocol.Key) {
	m := &protocol.Assemble{Key: key, Digests: func(b protocol.Body) ([]protocol.Digest, error) {
		return digestsOf(b), nil
	}}
	r.w.run(r.main, m, func(err error) {
		if err != nil {
			r.w.note("%-14s can't assemble %s: %v", r.name, key, err)
			r.release()
			return
		}
		r.w.checkAssembled(key, m.Tables)
		r.stage(m.Manifest)
		r.read(key, 0)
	})
}

// stage decides what must be read: all, or only the difference to what is served.
func (r *reader) stage(manifest protocol.Item) {
	base := namedBy(manifest.Body).base
	r.staged = content{ref: protocol.Ref{Key: manifest.Place.Key, Manifest: manifest.Body.Digest}}
	if base.IsZero() || !protocol.MayStageOn(base, r.arena.ref) && !r.w.mutation.BaseIgnored {
		return
	}
	r.staged.written, r.staged.upon = r.arena.written, true
	r.w.note("%-14s stages %s as a difference upon %s", r.name, manifest.Place.Key, r.arena.ref.Key)
}

// read takes the bytes of one rank after the other, slowly.
func (r *reader) read(key protocol.Key, rank int) {
	for rank < ranks && r.staged.upon && written(key, rank) != key {
		rank++ // it did not change
	}
	if !r.valid() {
		r.release()
		return
	}
	if rank == ranks {
		r.confirm(key)
		return
	}
	began := r.w.now
	d := []time.Duration{100 * time.Millisecond, 3 * time.Second, 15 * time.Second}[r.w.choose.pick(3)]
	r.w.sleep(r.main, d, func() {
		if !r.valid() && !r.w.mutation.LeaseCheckedOnce {
			r.w.note("%-14s throws away what it read of %s", r.name, key)
			r.release()
			return
		}
		r.w.checkRead(r, key, rank, began)
		r.staged.written[rank] = written(key, rank)
		r.read(key, rank+1)
	})
}

// confirm looks once more before it installs.
func (r *reader) confirm(key protocol.Key) {
	m := &once{in: protocol.Intent{Verb: protocol.ReadLeader, Place: protocol.Place{Kind: protocol.KindCommit, Key: key}}}
	r.w.run(r.main, m, func(error) {
		if len(m.res.Items) == 0 || m.res.Items[0].Body.Class != protocol.ClassManifest || !r.valid() {
			r.release()
			return
		}
		r.w.checkInstall(r, key)
		r.serving, r.arena = key, r.staged
		r.w.note("%-14s serves %s", r.name, key)
		r.release()
	})
}

func (r *reader) release() {
	lease := r.lease
	r.lease = nil
	r.w.crash(r.renew)
	m := &protocol.Release{Key: lease.Key, Receiver: r.name, Holder: lease.Lease.Holder, Seq: lease.Seq}
	r.w.run(r.main, m, func(error) { r.w.sleep(r.main, 100*time.Millisecond, r.look) })
}

// once is a machine that asks one thing until there is an answer.
type once struct {
	in      protocol.Intent
	res     protocol.Result
	state   int
	waiting bool
}

func (o *once) Step(r protocol.Result) protocol.Intent {
	o.state++
	switch {
	case o.state == 1 || o.waiting:
		o.waiting = false
		return o.in
	case r.Outcome == protocol.OK:
		o.res = r
		return protocol.Intent{Verb: protocol.Done}
	}
	o.waiting = true
	return protocol.Intent{Verb: protocol.Wait, Delay: 100 * time.Millisecond}
}
