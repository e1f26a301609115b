package plan

import (
	"fmt"
	"html"
	"strings"

	"github.com/drydock-rl/drydock/pkg/plan/cover"
)

// The picture's size in pixels, and how many rectangles it may hold: beyond, what is left is counted.
const (
	pictureWide  = 960
	pictureHigh  = 540
	pictureRects = 20000
)

// Picture draws which rank each byte of a parameter comes from, as an SVG file: rows are the leading
// dimensions together, columns the last one.
func (p *Plan) Picture(dest int, param string) (string, error) {
	e, err := p.Explain(dest, param)
	if err != nil {
		return "", err
	}
	pic := picture{q: cover.Space{Lo: e.Offset, Hi: e.Offset + e.Nbytes}, pitch: max(e.Nbytes, 1)}
	if n := len(e.Shape); n > 1 && e.Nbytes > 0 {
		pic.pitch = e.Nbytes / nelems(e.Shape[:n-1])
	}
	for i := range p.batches {
		rank := p.batches[i].Rank
		var r cover.Region
		p.batchRegions(i, dest, &r, func(id int, r *cover.Region) bool {
			if r.Off >= pic.q.Lo && r.Off < pic.q.Hi {
				pic.region(r, rank, fmt.Sprintf("rank %d, %s", rank, p.dests[dest].Copies[id].Source))
			}
			return true
		})
	}
	for i := range p.fills {
		var r cover.Region
		if f := &p.fills[i]; f.Dest == dest && f.Off >= pic.q.Lo && f.Off < pic.q.Hi {
			pic.region(f.region(&r), -1, "fill")
		}
	}
	return pic.svg(e), nil
}

// picture gathers what is drawn of one parameter.
type picture struct {
	q     cover.Space // the parameter's bytes in the arena
	pitch int64       // bytes of a row; at least 1
	rects []rect
	more  int // rectangles beyond those kept
}

// rect is a rectangle of the picture, in bytes along a row and in rows.
type rect struct {
	x, y, w, h int64 // bytes and rows
	rank       int   // -1: a fill
	label      string
}

// region adds the rectangles of a region: rows that follow each other become one.
func (p *picture) region(r *cover.Region, rank int, label string) {
	w := pattern{dst: r.Off - p.q.Lo, run: r.Run}
	for d := range r.NDim {
		w.dims = append(w.dims, pdim{n: r.N[d], dst: r.Stride[d]})
	}
	sortBy(w.dims, func(d pdim) int64 { return -d.dst })
	for k := len(w.dims) - 1; k >= 0 && w.dims[k].dst == w.run; k-- {
		w.run *= w.dims[k].n
		w.dims = w.dims[:k]
	}
	rows := int64(1)
	if k := len(w.dims) - 1; k >= 0 && w.dims[k].dst == p.pitch && w.run <= p.pitch {
		rows = w.dims[k].n
		w.dims = w.dims[:k]
	}
	w.each(func(_, at int64) bool {
		p.run(at, w.run, rows, rank, label)
		return true
	})
}

// run adds a run of bytes, repeated over rows: a piece of a row, whole rows, a piece of a row.
func (p *picture) run(at, n, rows int64, rank int, label string) {
	x, y := at%p.pitch, at/p.pitch
	if x+n <= p.pitch {
		p.add(rect{x, y, n, rows, rank, label})
		return
	}
	if x > 0 {
		p.add(rect{x, y, p.pitch - x, 1, rank, label})
		n -= p.pitch - x
		y++
	}
	if whole := n / p.pitch; whole > 0 {
		p.add(rect{0, y, p.pitch, whole, rank, label})
		y += whole
		n -= whole * p.pitch
	}
	if n > 0 {
		p.add(rect{0, y, n, 1, rank, label})
	}
}

// add keeps a rectangle, or counts it when there are too many for a browser.
func (p *picture) add(r rect) {
	if len(p.rects) == pictureRects {
		p.more++
		return
	}
	p.rects = append(p.rects, r)
}

// svg writes the file: title, rectangles with tooltips, and a legend of the ranks that occur.
func (p *picture) svg(e *Explanation) string {
	var b strings.Builder
	rows := max(1, (p.q.Hi-p.q.Lo+p.pitch-1)/p.pitch)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n", pictureWide+20, pictureHigh+80)
	fmt.Fprintf(&b, `<text x="10" y="20">%s %s%v, destination rank %d, %s</text>`+"\n", html.EscapeString(e.Param), e.DType, e.Shape, e.Dest, nbytesString(e.Nbytes))
	fmt.Fprintf(&b, `<g transform="translate(10,30)"><rect width="%d" height="%d" fill="#fff" stroke="#888"/>`+"\n", pictureWide, pictureHigh)
	sx, sy := float64(pictureWide)/float64(p.pitch), float64(pictureHigh)/float64(rows)
	seen := map[int]bool{}
	var ranks []int64
	for _, r := range p.rects {
		if !seen[r.rank] {
			seen[r.rank] = true
			ranks = append(ranks, int64(r.rank))
		}
		fmt.Fprintf(&b, `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"><title>%s</title></rect>`+"\n",
			float64(r.x)*sx, float64(r.y)*sy, float64(r.w)*sx, float64(r.h)*sy, colour(r.rank), html.EscapeString(r.label))
	}
	b.WriteString("</g>\n")
	sortBy(ranks, func(r int64) int64 { return r })
	for i, r := range ranks {
		label := fmt.Sprintf("rank %d", r)
		if r < 0 {
			label = "fill"
		}
		x, y := 10+i%12*80, pictureHigh+45+i/12*16
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", x, y, colour(int(r)), x+16, y+11, label)
	}
	if p.more > 0 {
		fmt.Fprintf(&b, `<text x="10" y="%d">%d more rectangles are not drawn</text>`+"\n", pictureHigh+76, p.more)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// colour gives neighbouring ranks colours far apart.
func colour(rank int) string {
	if rank < 0 {
		return "#ddd"
	}
	return fmt.Sprintf("hsl(%d,60%%,%d%%)", rank*137%360, 50+rank%3*10)
}
