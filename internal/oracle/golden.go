package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// goldenSchema names the files of torch's answers to op-chains.
const goldenSchema = "refit.golden.plan.v1"

// goldenFile is such a file. Fields that only describe a case are left out.
type goldenFile struct {
	Fill  byte         `json:"fill"` // what every destination byte is before
	Cases []goldenCase `json:"cases"`
}

// goldenCase is what trainers hold and what a destination wants of it, with torch's answer.
type goldenCase struct {
	ID      json.RawMessage        `json:"id"` // a number or a name
	Sources []goldenSource         `json:"sources"`
	Copies  []goldenCopy           `json:"copies"`
	Params  map[string]goldenParam `json:"params"`
	Peer    map[string]goldenPeer  `json:"peer"` // by setting: see limits

	ranks map[string]int // by session
}

// goldenSource is one tensor. Its bytes are made by a formula, from its place in the case.
type goldenSource struct {
	Name     string        `json:"name"`
	Shape    []int64       `json:"global_shape"`
	DType    string        `json:"dtype"`
	FillRule string        `json:"fill_rule"` // finite: infinities and NaNs lose a bit
	Shards   []goldenShard `json:"shards"`
}

// goldenShard is a box that one session holds at an address.
type goldenShard struct {
	Session string      `json:"session"`
	Offset  []int64     `json:"offset"` // elements of the global shape, like Shape
	Shape   []int64     `json:"shape"`
	Stride  []int64     `json:"stride"` // elements; null: row-major
	Addr    json.Number `json:"addr"`   // of the first element, up to 2^64
}

// goldenCopy is one copy; offsets, sizes and strides are in elements of the destination's type.
type goldenCopy struct {
	Src       string          `json:"src"`
	Ops       json.RawMessage `json:"ops"`
	Param     string          `json:"param"`
	Offset    int64           `json:"dest_offset"`
	Shape     []int64         `json:"dest_shape"`
	Stride    []int64         `json:"dest_stride"`
	DType     string          `json:"dest_dtype"`
	PureView  bool            `json:"pure_view"`
	Expect    string          `json:"expect"`     // view, refused, view_or_refused; "": view where PureView
	Why       string          `json:"why"`        // of refused
	RefusedAt *int            `json:"refused_at"` // the operation at fault; null: it is about something else
	Cast      string          `json:"cast"`       // widening, narrowing; "": none
}

// goldenParam is what a parameter must hold afterwards.
type goldenParam struct {
	Numel        int64  `json:"numel"`
	DType        string `json:"dtype"`
	SHA256       string `json:"sha256"`
	Needed       int64  `json:"needed_bytes"`  // of sources, that the copies read
	Covered      int64  `json:"covered_bytes"` // of those, that some shard holds
	Unwritten    int64  `json:"unwritten"`     // elements
	WrittenTwice int64  `json:"written_twice"` // elements
	MustFill     bool   `json:"must_fill"`     // unwritten elements are a hole, not padding
}

// goldenPeer is what the reference planner said of the case.
type goldenPeer struct {
	Descriptors      int64    `json:"descriptors"`
	Bytes            int64    `json:"bytes"`
	ExactDescriptors int64    `json:"exact_descriptors"`
	ExactBytes       int64    `json:"exact_bytes"`
	Fallback         []string `json:"fallback"`
	FullPulls        []string `json:"full_pulls"`
	Unbounded        []string `json:"unbounded"`
	Sessions         []string `json:"sessions"`
}

// bytes makes the source's bytes by the file's formula; t is its place in the case.
func (s *goldenSource) bytes(t int, dt plan.DType) []byte {
	b := make([]byte, plantest.Nelems(s.Shape)*dt.Size())
	for k := range b {
		b[k] = byte(k*131 + (k>>8)*7 + t*17 + 1)
	}
	if s.FillRule == "finite" {
		finite(b, dt)
	}
	return b
}

// finite clears one bit of each element that would be infinite or NaN.
func finite(b []byte, dt plan.DType) {
	rules := map[plan.DType][2]uint64{
		plan.BF16: {0x7F80, 0x0080}, plan.F16: {0x7C00, 0x0400}, plan.F32: {0x7F800000, 0x00800000},
		plan.F64: {0x7FF0000000000000, 0x0010000000000000}, plan.F8E4M3: {0x7F, 0x01}, plan.F8E5M2: {0x7C, 0x04},
	}
	rule, ok := rules[dt]
	if !ok {
		return
	}
	n := int(dt.Size())
	for at := 0; at+n <= len(b); at += n {
		var w [8]byte
		copy(w[:], b[at:at+n])
		if e := binary.LittleEndian.Uint64(w[:]); e&rule[0] == rule[0] {
			binary.LittleEndian.PutUint64(w[:], e&^rule[1])
			copy(b[at:at+n], w[:n])
		}
	}
}

// rank numbers a session: as its name says, or in order of first mention.
func (c *goldenCase) rank(session string) int {
	if c.ranks == nil {
		c.ranks = map[string]int{}
	}
	r, ok := c.ranks[session]
	if !ok {
		var err error
		if r, err = strconv.Atoi(strings.TrimPrefix(session, "rank")); err != nil || r < 0 || r >= 1<<20 {
			r = 1<<20 + len(c.ranks)
		}
		c.ranks[session] = r
	}
	return r
}

// world lays the case's shards out, one region each. A region ends at the end of the address space.
func (c *goldenCase) world() (*plantest.World, error) {
	w := &plantest.World{}
	nbytes := 0.0
	for i := range c.Sources {
		s := &c.Sources[i]
		dt, err := plan.ParseDType(s.DType)
		if err != nil {
			return nil, err
		}
		w.AddSource(0, s.Name, dt, s.Shape)
		nbytes += size(s.Shape, dt)
		for _, sh := range s.Shards {
			rank := c.rank(sh.Session)
			addr, err := parseAddr(sh.Addr)
			if err != nil {
				return nil, err
			}
			room := int64(math.MaxInt64)
			if left := -addr; addr != 0 && left < math.MaxInt64 { // bytes up to 2^64
				room = int64(left)
			}
			if len(sh.Shape) != len(sh.Offset) || sh.Stride != nil && len(sh.Stride) != len(sh.Shape) {
				return nil, fmt.Errorf("source %q: a shard at %v of %v with strides %v", s.Name, sh.Offset, sh.Shape, sh.Stride)
			}
			box := make([]int64, 0, 2*len(sh.Offset))
			for d := range sh.Offset {
				box = append(box, sh.Offset[d], sh.Offset[d]+sh.Shape[d])
			}
			w.AddShard(rank, s.Name, dt, s.Shape, box, sh.Stride, room)
		}
	}
	for _, q := range c.Params {
		nbytes += 8 * float64(q.Numel)
	}
	if nbytes > maxPerformed {
		return nil, fmt.Errorf("sources and parameters of %.0f bytes: this program performs at most %d", nbytes, int64(maxPerformed))
	}
	return w, nil
}

// parseAddr reads an address, which may use all 64 bits.
func parseAddr(n json.Number) (uint64, error) {
	var a uint64
	if _, err := fmt.Sscan(n.String(), &a); err != nil {
		return 0, fmt.Errorf("address %q: %w", n, err)
	}
	return a, nil
}

// dest turns the case's copies into a destination. Parameters lie one after the other in order of first
// mention; orphans take copies whose parameter is not declared.
func (c *goldenCase) dest(strictFill bool) (plan.Dest, []string, error) {
	var d plan.Dest
	var names []string
	index := map[string]int{}
	for i := range c.Copies {
		k := &c.Copies[i]
		q, ok := c.Params[k.Param]
		if !ok {
			continue
		}
		if _, seen := index[k.Param]; seen {
			continue
		}
		dt, err := plan.ParseDType(q.DType)
		if err != nil {
			return d, nil, err
		}
		index[k.Param] = len(d.Params)
		names = append(names, k.Param)
		d.Params = append(d.Params, plan.Param{Name: k.Param, DType: dt, Shape: []int64{q.Numel}, Padded: !strictFill || !q.MustFill})
	}
	for i := range c.Copies {
		k := &c.Copies[i]
		ops, err := plan.DecodeOps(k.Ops)
		if err != nil {
			return d, nil, fmt.Errorf("copy %d: %w", i, err)
		}
		at, ok := index[k.Param]
		if !ok {
			at = -1
		}
		dt, err := plan.ParseDType(k.DType)
		if err != nil {
			return d, nil, err
		}
		d.Copies = append(d.Copies, plan.Copy{Source: k.Src, Ops: ops, Param: at, Offset: k.Offset, Shape: k.Shape, Stride: k.Stride, DType: dt})
	}
	d.LayOut(64)
	return d, names, nil
}
