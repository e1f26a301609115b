package tracing

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Detail is one piece of work below a stage: a read from one source, the
// verification of one batch. A nil Detail records nothing.
//
// Details are shown when their stage span ends, with the times that they had.
// Of each name at most MaxDetails are shown one by one, failed ones first, then
// the slowest; the others become one span that says how many they were, how
// many bytes they had and how long they took. So the size of a trace follows
// from the number of participants, never from what each of them reads.
type Detail struct {
	sp     *Span
	name   string
	start  time.Time
	end    time.Time
	err    error
	bytes  int64
	attrs  []attribute.KeyValue
	events []detailEvent
}

type detailEvent struct {
	name  string
	at    time.Time
	attrs []attribute.KeyValue
}

// maxDetailEvents bounds the events that one detail keeps.
const maxDetailEvents = 16

// Detail opens a piece of work below sp. It must be used by one goroutine at a
// time; details of one span may run concurrently.
func (sp *Span) Detail(name string, attrs ...attribute.KeyValue) *Detail {
	if sp == nil {
		return nil
	}
	return &Detail{sp: sp, name: name, start: sp.c.o.Now(), attrs: append([]attribute.KeyValue(nil), attrs...)}
}

// Set adds attributes.
func (d *Detail) Set(attrs ...attribute.KeyValue) {
	if d != nil {
		d.attrs = append(d.attrs, attrs...)
	}
}

// AddBytes adds to the bytes of the detail, and to those of its stage span.
func (d *Detail) AddBytes(nbytes int64) {
	if d == nil {
		return
	}
	d.bytes += max(0, nbytes)
	d.sp.AddBytes(nbytes)
}

// SetBytes says how many bytes the detail had, where its stage span counts them otherwise.
func (d *Detail) SetBytes(nbytes int64) {
	if d != nil {
		d.bytes = max(0, nbytes)
	}
}

// Event notes a moment; the first 16 of a detail are kept.
func (d *Detail) Event(name string, attrs ...attribute.KeyValue) {
	if d == nil || len(d.events) == maxDetailEvents {
		return
	}
	d.events = append(d.events, detailEvent{name, d.sp.c.o.Now(), append([]attribute.KeyValue(nil), attrs...)})
}

// End closes the detail, as failed when err is not nil. Only the first call
// counts, and none after the end of the stage span.
func (d *Detail) End(err error) {
	if d == nil || !d.end.IsZero() {
		return
	}
	c := d.sp.c
	c.mu.Lock()
	defer c.mu.Unlock()
	d.end, d.err = c.o.Now(), err
	if !d.sp.ended {
		d.sp.details.add(d, c.o.MaxDetails)
	}
}

// details are the ended details of one stage span, by name.
type details struct {
	names  []string // in order of appearance
	groups map[string]*detailGroup
}

func (ds *details) add(d *Detail, limit int) {
	g := ds.groups[d.name]
	if g == nil {
		if ds.groups == nil {
			ds.groups = map[string]*detailGroup{}
		}
		g = &detailGroup{limit: limit}
		ds.groups[d.name] = g
		ds.names = append(ds.names, d.name)
	}
	g.add(d)
}

// emit turns the details into spans under the span of ctx.
func (ds *details) emit(ctx context.Context, tr trace.Tracer) {
	for _, name := range ds.names {
		ds.groups[name].emit(ctx, tr, name)
	}
}

// detailGroup keeps the limit details of one name that matter most, least
// first, and sums of all the others.
type detailGroup struct {
	limit int
	kept  []*Detail
	rest  aggregate
}

// aggregate stands for details that are not shown.
type aggregate struct {
	count, errors int
	bytes         int64
	busy          time.Duration // sum
	least, most   time.Duration
	first, last   time.Time
}

// weight orders details: failed before successful, slow before fast.
func weight(a, b *Detail) int {
	if c := cmp.Compare(boolInt(a.err != nil), boolInt(b.err != nil)); c != 0 {
		return c
	}
	return cmp.Compare(a.end.Sub(a.start), b.end.Sub(b.start))
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (g *detailGroup) add(d *Detail) {
	at, _ := slices.BinarySearchFunc(g.kept, d, weight)
	g.kept = slices.Insert(g.kept, at, d)
	if len(g.kept) > g.limit {
		g.rest.fold(g.kept[0])
		g.kept = append(g.kept[:0], g.kept[1:]...)
	}
}

func (a *aggregate) fold(d *Detail) {
	took := d.end.Sub(d.start)
	if a.count == 0 {
		a.least, a.first = took, d.start
	}
	a.count++
	a.errors += boolInt(d.err != nil)
	a.bytes += d.bytes
	a.busy += took
	a.least, a.most = min(a.least, took), max(a.most, took)
	if d.start.Before(a.first) {
		a.first = d.start
	}
	if d.end.After(a.last) {
		a.last = d.end
	}
}

func (g *detailGroup) emit(ctx context.Context, tr trace.Tracer, name string) {
	slices.SortFunc(g.kept, func(a, b *Detail) int { return a.start.Compare(b.start) })
	for _, d := range g.kept {
		d.emit(ctx, tr)
	}
	if a := g.rest; a.count > 0 {
		_, span := tr.Start(ctx, name+" (others)", trace.WithTimestamp(a.first), trace.WithAttributes(
			attrCount.Int(a.count), attrErrors.Int(a.errors), AttrBytes.Int64(a.bytes),
			attrBusy.Float64(float64(ToMillis(a.busy))), attrFastest.Float64(float64(ToMillis(a.least))), attrSlowest.Float64(float64(ToMillis(a.most)))))
		span.End(trace.WithTimestamp(a.last))
	}
}

func (d *Detail) emit(ctx context.Context, tr trace.Tracer) {
	_, span := tr.Start(ctx, d.name, trace.WithTimestamp(d.start), trace.WithAttributes(d.attrs...))
	if d.bytes > 0 {
		span.SetAttributes(AttrBytes.Int64(d.bytes))
	}
	for _, e := range d.events {
		span.AddEvent(e.name, trace.WithTimestamp(e.at), trace.WithAttributes(e.attrs...))
	}
	fail(span, d.err)
	span.End(trace.WithTimestamp(d.end))
}
