package tracesink

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// DrawOptions say how a trace is drawn. The zero value is valid.
type DrawOptions struct {
	Bar     int           // width of the timeline in characters; default 24
	MaxName int           // width of the tree in characters, beyond which names are cut; default 56
	MaxRows int           // lines of the tree, beyond which only a count is shown; default 1,000
	Gap     time.Duration // shown between siblings from here on; default a twentieth of the trace
}

func (o DrawOptions) withDefaults(total time.Duration) DrawOptions {
	o.Bar = cmp.Or(o.Bar, 24)
	o.MaxName = cmp.Or(o.MaxName, 56)
	o.MaxRows = cmp.Or(o.MaxRows, 1000)
	o.Gap = max(1, cmp.Or(o.Gap, total/20))
	return o
}

// Draw writes the trace as a tree: for each span its process, when it began
// (milliseconds after the trace's first span), how long it took, where that lies
// in the whole, its own attributes, and its error. Events stand below their
// span, and a gap between two siblings of one process is a line of its own.
// Clocks of several hosts are shown as they are.
func (t *Trace) Draw(w io.Writer, o DrawOptions) error {
	bw := bufio.NewWriter(w)
	if len(t.Spans) == 0 {
		fmt.Fprintf(bw, "trace %s: no spans\n", t.ID)
		return bw.Flush()
	}
	d := newDrawing(t, o)
	fmt.Fprintf(bw, "trace %s: %d spans of %d processes, %s ms\n", t.ID, len(t.Spans), d.processes(), millis(d.total))
	d.tree()
	d.write(bw)
	return bw.Flush()
}

// drawing is the state of one Draw.
type drawing struct {
	o        DrawOptions
	trace    *Trace
	start    time.Time
	total    time.Duration
	children map[SpanID][]*Span
	seen     map[SpanID]bool
	rows     []row
	left     int // rows that did not fit
}

// row is one line of the tree; empty columns are left out.
type row struct{ tree, process, at, took, bar, notes string }

func newDrawing(t *Trace, o DrawOptions) *drawing {
	d := &drawing{trace: t, start: t.Spans[0].Start, children: map[SpanID][]*Span{}, seen: map[SpanID]bool{}}
	end := d.start
	for i := range t.Spans {
		sp := &t.Spans[i]
		d.children[sp.Parent] = append(d.children[sp.Parent], sp)
		if sp.End.After(end) {
			end = sp.End
		}
	}
	d.total = end.Sub(d.start)
	d.o = o.withDefaults(d.total)
	return d
}

func (d *drawing) processes() int {
	names := map[string]bool{}
	for i := range d.trace.Spans {
		names[d.trace.Spans[i].Process()] = true
	}
	return len(names)
}

// tree draws what hangs on a root, then what hangs on parents that nobody sent.
func (d *drawing) tree() {
	d.siblings("", d.children[SpanID{}], true)
	present := map[SpanID]bool{{}: true}
	for i := range d.trace.Spans {
		present[d.trace.Spans[i].ID] = true
	}
	for i := range d.trace.Spans {
		if sp := &d.trace.Spans[i]; !present[sp.Parent] && !d.seen[sp.ID] {
			d.add(row{tree: fmt.Sprintf("(span %s, not seen)", sp.Parent)})
			d.siblings("", d.children[sp.Parent], false)
		}
	}
	// What is left hangs on itself, which no honest sender makes, or did not fit.
	for i := range d.trace.Spans {
		if sp := &d.trace.Spans[i]; !d.seen[sp.ID] {
			d.span("", "", sp)
		}
	}
}

// siblings draws the children of one span, or the roots, which have no branch.
func (d *drawing) siblings(indent string, spans []*Span, roots bool) {
	ends := map[string]time.Time{} // by process: the latest end so far
	for i, sp := range spans {
		branch, below := "├─ ", "│  "
		switch {
		case roots:
			branch, below = "", ""
		case i == len(spans)-1:
			branch, below = "└─ ", "   "
		}
		who := sp.Process()
		if end, ok := ends[who]; ok && sp.Start.Sub(end) >= d.o.Gap {
			d.add(row{tree: indent + "⋮  (gap)", process: process(sp), at: millis(end.Sub(d.start)), took: millis(sp.Start.Sub(end))})
		}
		if sp.End.After(ends[who]) {
			ends[who] = sp.End
		}
		d.span(indent+branch, indent+below, sp)
	}
}

func (d *drawing) span(branch, below string, sp *Span) {
	if d.seen[sp.ID] {
		return
	}
	d.seen[sp.ID] = true
	if len(d.rows) == d.o.MaxRows {
		d.left++ // its children are counted one by one, without going deeper
		return
	}
	d.add(row{
		tree: branch + clean(sp.Name), process: process(sp), at: millis(sp.Start.Sub(d.start)),
		took: millis(sp.Duration()), bar: d.bar(sp), notes: notes(sp),
	})
	for _, e := range sp.Events {
		d.add(row{tree: below + "· " + clean(strings.TrimPrefix(e.Name, "drydock.")), at: millis(e.Time.Sub(d.start)), notes: pairs(e.Attributes)})
	}
	d.siblings(below, d.children[sp.ID], false)
}

func (d *drawing) add(r row) {
	if len(d.rows) == d.o.MaxRows {
		d.left++
		return
	}
	r.tree = cut(r.tree, d.o.MaxName)
	d.rows = append(d.rows, r)
}

// bar marks the span's place; a span too short for a character still gets one.
func (d *drawing) bar(sp *Span) string {
	if d.total <= 0 {
		return strings.Repeat("█", d.o.Bar)
	}
	cell := func(t time.Time) int {
		at := float64(t.Sub(d.start)) / float64(d.total) * float64(d.o.Bar)
		return min(max(int(at+0.5), 0), d.o.Bar)
	}
	from, to := min(cell(sp.Start), d.o.Bar-1), cell(sp.End)
	to = max(to, from+1)
	return strings.Repeat(" ", from) + strings.Repeat("█", to-from) + strings.Repeat(" ", d.o.Bar-to)
}

func (d *drawing) write(w io.Writer) {
	var tree, proc, at, took int
	for _, r := range d.rows {
		tree, proc = max(tree, utf8.RuneCountInString(r.tree)), max(proc, utf8.RuneCountInString(r.process))
		at, took = max(at, len(r.at)), max(took, len(r.took))
	}
	at, took = max(at, len("at ms")), max(took, len("took ms"))
	line := func(r row) {
		s := pad(r.tree, tree) + "  " + pad(r.process, proc) + "  " + strings.Repeat(" ", at-len(r.at)) + r.at +
			"  " + strings.Repeat(" ", took-len(r.took)) + r.took + "  " + pad(r.bar, d.o.Bar) + "  " + r.notes
		fmt.Fprintln(w, strings.TrimRight(s, " "))
	}
	line(row{tree: "span", process: "process", at: "at ms", took: "took ms"})
	for _, r := range d.rows {
		line(r)
	}
	if d.left > 0 {
		fmt.Fprintf(w, "… and %d more\n", d.left)
	}
}

// hidden attributes repeat what the row says already, or what all rows share;
// of the latter the root shows the version and the size of the world.
var (
	hidden      = []string{"drydock.model", "drydock.backend", "drydock.stage", "drydock.run", "error.type"}
	hiddenBelow = []string{"drydock.version", "drydock.world"}
)

// notes are the attributes of Drydock's own and of messaging, links, and the error.
func notes(sp *Span) string {
	var own []Attribute
	for _, a := range sp.Attributes {
		below := sp.Parent != SpanID{} && slices.Contains(hiddenBelow, a.Key)
		if (strings.HasPrefix(a.Key, "drydock.") || a.Key == "messaging.destination.name") && !slices.Contains(hidden, a.Key) && !below {
			own = append(own, a)
		}
	}
	out := pairs(own)
	for _, l := range sp.Links {
		out = joined(out, "→ trace "+l.String()[:8])
	}
	if sp.Failed {
		out = joined(out, "✗ "+cut(clean(sp.Message), 160))
	}
	return out
}

func pairs(attrs []Attribute) string {
	out := ""
	for _, a := range attrs {
		key := strings.TrimPrefix(a.Key, "drydock.")
		value := text(a.Value)
		if n, ok := a.Value.(int64); ok && strings.HasSuffix(key, "bytes") {
			value = size(n)
		}
		out = joined(out, clean(key)+"="+cut(clean(value), 80))
	}
	return out
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + " " + b
}

// size writes a number of bytes with three digits, in powers of 1,000.
func size(n int64) string {
	f, unit := float64(n), 0
	for f >= 999.5 && unit < 5 {
		f, unit = f/1000, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%dB", n)
	}
	return fmt.Sprintf("%.3g%cB", f, " kMGTP"[unit])
}

// process names the process briefly: an instance that repeats its service's name
// stands alone.
func process(sp *Span) string {
	service := strings.TrimPrefix(sp.Service(), "drydock-")
	if in := sp.Instance(); strings.HasPrefix(in, service) && in != "" {
		return clean(in)
	}
	return clean(strings.TrimPrefix(sp.Process(), "drydock-"))
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

// clean keeps what other processes wrote from moving the cursor of a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, s)
}
