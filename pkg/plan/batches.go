package plan

import (
	"cmp"
	"slices"
)

// assign gives each read to a rank that holds it: among several, to a preferred one, then to the one with
// the least to do. It runs twice, with the same answers: to count, and to write every list into its place.
func (a *assembler) assign(to func(list uint32, rc rec)) {
	clear(a.load)
	for i := range a.p.insts {
		t := a.p.templates[a.p.insts[i].tmpl]
		for k := range t.reads {
			r := &t.reads[k]
			from := t.holders[r.slot]
			rank := from[0].rank
			if len(from) > 1 {
				rank = a.lightest(from)
			}
			a.load[rank] += r.wire
			list := 2 * rank
			if r.staging > 0 {
				list++
			}
			to(list, rec{uint32(i), uint32(k)})
		}
	}
}

// lightest starts looking at a place that differs between destinations, so that receivers that plan the
// same at the same time don't all choose the same rank.
func (a *assembler) lightest(from []holder) uint32 {
	start := 0
	if len(a.p.dests) > 0 {
		start = max(0, a.p.dests[0].Rank) % len(from)
	}
	best := from[start].rank
	for i := range from {
		if rank := from[(start+i)%len(from)].rank; a.load[rank] < a.load[best] {
			best = rank
		}
	}
	return best
}

// batches cuts each rank's reads into batches, direct ones before staged ones, and orders them so that
// every rank has work from the first to the last.
//
// A receiver that works through the list with a few batches in flight keeps every source's link busy if each
// rank's batches are spread evenly over the list. So a batch comes at the share of its rank's bytes that is done
// when it is half done: of a rank with three equal ones at 1/6, 1/2 and 5/6, of one with a single one at 1/2. Direct
// reads come first because nothing remains to be done once they are here; what is scattered later can overlap with
// what still flies.
func (a *assembler) batches() {
	p := a.p
	end := make([]uint32, 2*len(a.load))
	a.assign(func(list uint32, _ rec) { end[list]++ })
	sum := uint32(0)
	for i, n := range end {
		end[i] = sum
		sum += n
	}
	p.recs = make([]rec, sum)
	a.assign(func(list uint32, rc rec) {
		p.recs[end[list]] = rc
		end[list]++
	})
	type ranked struct {
		batchRange
		at float64 // of the rank's bytes, the share that is done when the batch is half done
	}
	var all []ranked
	at := uint32(0)
	for rank := range a.load {
		done := 0.0
		for _, stop := range end[2*rank : 2*rank+2] {
			for at < stop {
				b := a.batch(uint32(rank), at, stop)
				at = b.to
				all = append(all, ranked{b, (done + float64(b.Wire)/2) / max(1, float64(a.load[rank]))})
				done += float64(b.Wire)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y ranked) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.rank, y.rank)) })
	p.batches = make([]batchRange, len(all))
	for i := range all {
		p.batches[i] = all[i].batchRange
	}
}

// batch takes as many of the reads [at, stop) as a batch may hold: at least one. A single read is never larger than
// that, down to one element, since builder.slot has cut it.
func (a *assembler) batch(rank, at, stop uint32) batchRange {
	p := a.p
	b := batchRange{from: at, to: at, rank: rank, Batch: Batch{Rank: p.t.ranks[rank].rank}}
	for _, rc := range p.recs[at:stop] {
		r := &p.templates[p.insts[rc.inst].tmpl].reads[rc.read]
		staging := alignStaging(r.staging)
		if b.to > at && (b.Wire+r.wire > p.o.BatchBytes || b.Staging+staging > p.o.StagingBytes) {
			break
		}
		b.to++
		b.Wire += r.wire
		b.Staging += staging
		b.Segments += int(r.segsEnd - r.segs)
		b.Runs += r.runs
	}
	return b
}
