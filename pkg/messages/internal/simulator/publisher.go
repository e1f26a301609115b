package simulator

import (
	"errors"
	"fmt"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// job is one training job: it takes a run, and its ranks publish versions.
type job struct {
	w     *world
	name  string
	run   uint64 // 0: not taken yet
	ranks []*publisher
}

// publisher is one rank of a job. A crash costs it what it was doing, not its memory.
type publisher struct {
	j       *job
	rank    int
	lane    *lane
	version uint64 // that it is working on; 0: it waits for its run
	slots   [slots]slot
	through bool
}

// slot is a buffer, and since when it holds what it holds.
type slot struct {
	key   protocol.Key
	since time.Duration
}

func (w *world) startJob() {
	j := &job{w: w, name: fmt.Sprintf("job-%d", len(w.jobs)+1)}
	w.jobs = append(w.jobs, j)
	w.note("%s starts", j.name)
	for r := range ranks {
		p := &publisher{j: j, rank: r, lane: w.addLane(fmt.Sprintf("%s/rank-%d", j.name, r))}
		p.lane.perform = w.mutation.perform
		j.ranks = append(j.ranks, p)
	}
	for _, p := range j.ranks {
		p.start()
	}
}

func (j *job) through() bool {
	for _, p := range j.ranks {
		if !p.through {
			return false
		}
	}
	return true
}

func (p *publisher) crash() {
	if p.through {
		return
	}
	p.j.w.note("%-14s crashes and starts again", p.lane.name)
	p.j.w.crash(p.lane)
	p.start()
}

// start begins, or begins again, with what survives a crash.
func (p *publisher) start() {
	w := p.j.w
	if p.version > 0 {
		p.retireOld()
		return
	}
	if p.rank != 0 {
		w.run(p.lane, &awaitRun{job: p.j.name}, func(error) { p.begin(w.newestRunOf(p.j.name)) })
		return
	}
	m := &protocol.TakeRun{Job: p.j.name, Make: func(n uint64) (protocol.Body, error) {
		return protocol.Body{Class: protocol.ClassRun, Digest: protocol.Sum(fmt.Append(nil, n, p.j.name)), Owner: p.j.name}, nil
	}}
	w.run(p.lane, m, func(err error) {
		if errors.Is(err, protocol.ErrFenced) {
			p.through = true
			return
		}
		if err != nil {
			w.violate("%s could not take a run: %v", p.j.name, err)
			return
		}
		p.begin(m.Record.Place.Key.Run)
	})
}

func (p *publisher) begin(run uint64) {
	if run == 0 {
		p.through = true // fenced before it began
		return
	}
	if p.j.run != 0 && p.j.run != run {
		p.j.w.violate("%s has run %d and run %d", p.j.name, p.j.run, run)
	}
	p.j.run, p.version = run, 1
	p.retireOld()
}

func (p *publisher) key(version uint64) protocol.Key {
	return protocol.Key{Run: p.j.run, Version: version}
}

// retireOld frees the slot that the next version needs.
func (p *publisher) retireOld() {
	w := p.j.w
	if p.version > versions {
		p.through = true
		return
	}
	if p.version <= slots {
		p.publish()
		return
	}
	old := p.key(p.version - slots)
	end := protocol.Body{Class: protocol.ClassRetired, Digest: protocol.Sum(fmt.Append(nil, "end", old, p.rank))}
	retire := &protocol.Retire{Key: old, Rank: p.rank, End: end, EndTTL: endTTL}
	w.run(p.lane, w.mutation.retire(retire), func(err error) {
		if err != nil {
			w.violate("%s could not retire %s: %v", p.lane.name, old, err)
			return
		}
		w.note("%-14s %s is drained, its buffer is free", p.lane.name, old)
		w.retired[old]++
		w.checkFree(p, old)
		p.publish()
	})
}

func (p *publisher) publish() {
	w, key := p.j.w, p.key(p.version)
	s := &p.slots[p.version%slots]
	if s.key != key {
		*s = slot{key, w.now}
		w.note("%-14s writes %s into slot %d", p.lane.name, key, p.version%slots)
	}
	put := &protocol.PutOnce{Place: protocol.Place{Kind: protocol.KindTable, Key: key, Rank: p.rank}, Body: tableBody(key, p.rank)}
	w.run(p.lane, put, func(err error) {
		if err != nil {
			w.violate("%s could not publish %s: %v", p.lane.name, key, err)
			return
		}
		p.commit()
	})
}

func (p *publisher) commit() {
	w, key := p.j.w, p.key(p.version)
	m := &protocol.Commit{Key: key, World: ranks, Build: func(tables []protocol.Item) (protocol.Body, error) {
		return manifestBody(key, tables), nil
	}}
	w.run(p.lane, w.mutation.commit(m), func(err error) {
		switch {
		case errors.Is(err, protocol.ErrFenced):
			w.note("%-14s is fenced and stops", p.lane.name)
			p.through = true
		case errors.Is(err, protocol.ErrRetired):
			// Other ranks have gone on and withdrawn it: this rank was very slow.
			p.version++
			p.retireOld()
		case err != nil:
			w.violate("%s could not commit %s: %v", p.lane.name, key, err)
		default:
			p.version++
			w.sleep(p.lane, time.Duration(w.choose.pick(3))*4*time.Second, p.retireOld)
		}
	})
}

func tableBody(key protocol.Key, rank int) protocol.Body {
	return protocol.Body{Class: protocol.ClassTable, Digest: protocol.Sum(fmt.Append(nil, "table", key, rank)), World: ranks}
}

// named is what a manifest says.
type named struct {
	digests []protocol.Digest // of the tables
	base    protocol.Ref      // zero: the version is whole
}

func manifestBody(key protocol.Key, tables []protocol.Item) protocol.Body {
	n := named{base: baseOf(key)}
	for _, t := range tables {
		n.digests = append(n.digests, t.Body.Digest)
	}
	return protocol.Body{
		Class: protocol.ClassManifest, Digest: protocol.Sum(fmt.Append(nil, "manifest", key, n)), Facts: n,
	}
}

// namedBy reads a manifest.
func namedBy(manifest protocol.Body) named {
	n, ok := manifest.Facts.(named)
	if !ok {
		panic(fmt.Sprintf("simulator: a manifest with facts %v", manifest.Facts))
	}
	return n
}

func digestsOf(manifest protocol.Body) []protocol.Digest { return namedBy(manifest).digests }

// baseOf: every second version is partial, and stands on the one before it.
func baseOf(key protocol.Key) protocol.Ref {
	if key.Version%2 == 1 {
		return protocol.Ref{}
	}
	before := protocol.Key{Run: key.Run, Version: key.Version - 1}
	return refOf(before)
}

// refOf names a version exactly: its manifest is known before it is made.
func refOf(key protocol.Key) protocol.Ref {
	var tables []protocol.Item
	for rank := range ranks {
		tables = append(tables, protocol.Item{Body: tableBody(key, rank)})
	}
	return protocol.Ref{Key: key, Manifest: manifestBody(key, tables).Digest}
}

// written is the version that a rank's bytes were last changed in: a partial version
// changes one rank's only.
func written(key protocol.Key, rank int) protocol.Key {
	if base := baseOf(key); !base.IsZero() && int(key.Version/2)%ranks != rank {
		return base.Key
	}
	return key
}

// awaitRun waits until a job has a run, or was fenced before its rank saw it.
type awaitRun struct {
	job     string
	waiting bool
}

func (a *awaitRun) Step(r protocol.Result) protocol.Intent {
	if len(r.Items) > 0 && r.Items[0].Body.Owner >= a.job { // names of jobs ascend
		return protocol.Intent{Verb: protocol.Done}
	}
	if a.waiting = !a.waiting; a.waiting {
		return protocol.Intent{Verb: protocol.LastRun}
	}
	return protocol.Intent{Verb: protocol.Wait, Delay: 50 * time.Millisecond}
}

// newestRunOf is the run that a job has; 0 when another job took over.
func (w *world) newestRunOf(name string) uint64 {
	for _, it := range w.store.last(protocol.LastRun, 0) {
		if it.Body.Owner == name {
			return it.Place.Key.Run
		}
	}
	return 0
}
