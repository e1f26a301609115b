package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
)

// TestGoldenBytes checks the formula of the golden files' sources by hand-made values.
func TestGoldenBytes(t *testing.T) {
	t.Parallel()
	s := goldenSource{Shape: []int64{2, 300}, FillRule: ""}
	b := s.bytes(3, plan.U8)
	for _, k := range []int{0, 1, 255, 256, 599} {
		if want := byte((k*131 + (k>>8)*7 + 3*17 + 1) & 0xff); b[k] != want {
			t.Errorf("byte %d of source 3 is %d, expected %d", k, b[k], want)
		}
	}
	for _, c := range []struct {
		dt         plan.DType
		have, want string
	}{
		{plan.BF16, "807f", "007f"}, // infinity loses its lowest exponent bit
		{plan.BF16, "c0ff", "40ff"},
		{plan.BF16, "7f7f", "7f7f"}, // the largest finite one stays
		{plan.F16, "007c", "0078"},
		{plan.F32, "0000807f", "0000007f"},
		{plan.F64, "000000000000f0ff", "000000000000e0ff"},
		{plan.F8E4M3, "7f7eff", "7e7efe"},
		{plan.F8E5M2, "7c7bff", "787bfb"},
		{plan.I64, "ffffffffffffff7f", "ffffffffffffff7f"},
	} {
		b, err := hex.DecodeString(c.have)
		if err != nil {
			t.Fatal(err)
		}
		if finite(b, c.dt); hex.EncodeToString(b) != c.want {
			t.Errorf("%s %s became %x, expected %s", c.dt, c.have, b, c.want)
		}
	}
}

// TestCheckpointBytes checks the captures' formula by the values that its page gives.
func TestCheckpointBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source int
		dt     plan.DType
		want   string
	}{
		{0, plan.BF16, "af8dc11cce16ed8f"}, {0, plan.F32, "afcd1d3bc15c0289"}, {7, plan.BF16, "b801fd8b6d2a"},
	} {
		if got := hex.EncodeToString(sourceBytes(c.source, c.dt, []int64{100})); !strings.HasPrefix(got, c.want) {
			t.Errorf("source %d as %s begins %.16s, expected %s", c.source, c.dt, got, c.want)
		}
	}
}

// TestSessions: a session is the rank that its name says, and any other name a rank of its own.
func TestSessions(t *testing.T) {
	t.Parallel()
	var c goldenCase
	seen := map[int]string{}
	for _, name := range []string{"rank0", "rank12", "rank12-b", "trainer", "rank-1", "10.0.0.1:5000", "rank99999999"} {
		r := c.rank(name)
		if other, twice := seen[r]; twice {
			t.Errorf("%q and %q are both rank %d", name, other, r)
		}
		if seen[r] = name; c.rank(name) != r {
			t.Errorf("%q is another rank the second time", name)
		}
	}
	if seen[0] != "rank0" || seen[12] != "rank12" {
		t.Errorf("got %v", seen)
	}
}

// plans wraps cases of one source of 4 bytes, held whole at an address, as a golden file.
func plans(addr, copies, params string) []byte {
	return fmt.Appendf(nil, `{"schema":"refit.golden.plan.v1","torch":"none","fill":238,"cases":[{"id":"mine","expect":"ok",
		"sources":[{"name":"x","global_shape":[4],"dtype":"uint8","elsize":1,"sharding":"whole",
			"shards":[{"session":"a","offset":[0],"shape":[4],"addr":%s}]}],
		"copies":[%s],"params":{%s}}]}`, addr, copies, params)
}

const (
	goodCopy  = `{"src":"x","ops":[],"param":"p","dest_offset":0,"dest_shape":[4],"dest_stride":[1],"dest_dtype":"uint8","pure_view":true,"expect":"view"}`
	goodParam = `"p":{"numel":4,"dtype":"uint8","sha256":"%s","needed_bytes":4,"covered_bytes":4,"unwritten":0,"written_twice":0,"must_fill":true}`
	otherSum  = "4d13ebc74da84b9ffc4ccdb29dd20b15ae0d70ba8c0a6fb3dd4a3b81eb2e4a4c" // of other bytes than those
)

// TestVerdictsOfPlans gives the judge files that are right, wrong, or that expect what doesn't come.
func TestVerdictsOfPlans(t *testing.T) {
	t.Parallel()
	right := fmt.Sprintf(goodParam, sumOf(1, 132, 7, 138))
	for _, c := range []struct {
		name                 string
		addr, copies, params string
		good                 bool
		says                 string
	}{
		{"right", "1048576", goodCopy, right, true, "1 right"},
		{"at the end of the address space", "18446744073709551612", goodCopy, right, true, "1 right"},
		{"beyond it", "18446744073709551613", goodCopy, right, false, "1 refused needlessly"},
		{"other bytes", "1048576", goodCopy, fmt.Sprintf(goodParam, otherSum), false, "other bytes than torch's"},
		{"a refusal that doesn't come", "1048576", strings.Replace(goodCopy, `"expect":"view"`, `"expect":"refused","why":"raises"`, 1), right, false, "not refused (raises)"},
		{
			"a refusal that comes", "1048576",
			strings.Replace(goodCopy, `"ops":[],`, `"ops":[["narrow",[0,3,2]]],"refused_at":0,`, 1) + "," + strings.Replace(goodCopy, `"p"`, `"q"`, 1),
			`"p":{"numel":4,"dtype":"uint8","sha256":"","needed_bytes":0,"covered_bytes":0,"unwritten":4,"written_twice":0,"must_fill":false},` + strings.Replace(right, `"p"`, `"q"`, 1),
			false, "1 refused needlessly", // it is marked as a view
		},
		{"an operation that is no list", "1048576", strings.Replace(goodCopy, `"ops":[]`, `"ops":[7]`, 1), right, false, "case \"mine\""},
		{"more elements than a memory has", "1048576", goodCopy, strings.Replace(right, `"numel":4`, `"numel":1099511627776`, 1), false, "at most"},
		{"a shard that contradicts itself", "1048576,\"stride\":[1,1]", goodCopy, right, false, "with strides [1 1]"},
		{"a hole that must not be", "1048576", strings.Replace(goodCopy, `"ops":[],"param":"p","dest_offset":0,"dest_shape":[4]`, `"ops":[["narrow",[0,0,3]]],"param":"p","dest_offset":0,"dest_shape":[3]`, 1), strings.Replace(right, `"unwritten":0`, `"unwritten":1`, 1), true, "1 refused as expected"},
	} {
		var out bytes.Buffer
		good, err := judgePlan(c.name, plans(c.addr, c.copies, c.params), &out)
		if err != nil || good != c.good || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: good %t, %v; expected %t and %q in\n%s", c.name, good, err, c.good, c.says, out.String())
		}
	}
}

// TestFilesThatAskForTooMuch: a few lines that name a size that no memory has are refused in words.
func TestFilesThatAskForTooMuch(t *testing.T) {
	t.Parallel()
	capture := `{"schema":"drydock.capture.v1","sources":[{"name":"w","dtype":"BF16","shape":[%d]}],"cases":[{"arch":"A","tp":1,"rank":0,
		"params":[{"name":"p","dtype":"BF16","shape":[%d]}],"copies":[],"fills":[]}]}`
	for _, n := range [][2]int64{{1 << 40, 1}, {1, 1 << 40}, {1 << 60, 1 << 60}} {
		if _, err := judgeCapture("c", fmt.Appendf(nil, capture, n[0], n[1]), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("sizes %v: got %v", n, err)
		}
	}
	layout := `{"schema":"refit.layouts.v1","id":"l","ranks":[{"rank":0,"entries":[{"name":"w","dtype":"float32","global_shape":[4],
		"box":[[0,4]],"local_shape":[4],"local_stride":[%d],"storage_offset":%d,"storage_bytes":%d}]}]}`
	for _, n := range [][3]int64{{1, 0, 1 << 50}, {1 << 50, 0, 16}, {1, 1 << 50, 16}, {1, -1, 16}, {1, 0, math.MaxInt64}} {
		if _, err := judgeLayout("l", fmt.Appendf(nil, layout, n[0], n[1], n[2]), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("stride, offset, bytes %v: got %v", n, err)
		}
	}
}

// TestListsOfPatterns: a cast file's list must have as many patterns as it says.
func TestListsOfPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    castSource
		dt   plan.DType
		want int // bytes; -1: refused
	}{
		{castSource{Patterns: "all8", Count: 256}, plan.F8E4M3, 256},
		{castSource{Patterns: "all16", Count: 1 << 16}, plan.BF16, 1 << 17},
		{castSource{Patterns: "all16", Count: 1 << 60}, plan.BF16, -1},
		{castSource{Patterns: "all16", Count: -1}, plan.BF16, -1},
		{castSource{Patterns: "explicit", Count: 1, Data: "AACAPw=="}, plan.F32, 4},
		{castSource{Patterns: "explicit", Count: 2, Data: "AACAPw=="}, plan.F32, -1},
		{castSource{Patterns: "explicit", Count: 1, Data: "!"}, plan.F32, -1},
		{castSource{Patterns: "some", Count: 1}, plan.F32, -1},
	} {
		b, err := c.s.bytes(c.dt)
		if (err == nil) != (c.want >= 0) || err == nil && len(b) != c.want {
			t.Errorf("%+v: got %d bytes, %v; expected %d", c.s, len(b), err, c.want)
		}
	}
}

// TestVerdictsOfLayouts rebuilds a tensor of two ranks, one of which may hold nothing and say so in any way.
func TestVerdictsOfLayouts(t *testing.T) {
	t.Parallel()
	entry := func(box, local, stride string) string {
		return fmt.Sprintf(`{"name":"w","dtype":"float32","global_shape":[3,2],"box":%s,"local_shape":%s,"local_stride":%s,"storage_offset":0,"storage_bytes":24}`, box, local, stride)
	}
	whole := entry("[[0,3],[0,2]]", "[3,2]", "[2,1]")
	for _, c := range []struct {
		name, first, second string
		good                bool
	}{
		{"an empty second rank", whole, entry("[[3,3],[0,2]]", "[0,2]", "[2,1]"), true},
		{"an empty rank that says one dimension", whole, entry("[[3,3],[0,2]]", "[0]", "[1]"), true},
		{"two blocks of columns", entry("[[0,3],[0,1]]", "[3,1]", "[1,1]"), entry("[[0,3],[1,2]]", "[3,1]", "[1,1]"), true},
		{"a transposed shard", entry("[[0,3],[0,2]]", "[3,2]", "[1,3]"), whole, true},
		{"a row that nobody holds", entry("[[0,2],[0,2]]", "[2,2]", "[2,1]"), entry("[[0,1],[0,2]]", "[1,2]", "[2,1]"), false},
	} {
		raw := fmt.Appendf(nil, `{"schema":"refit.layouts.v1","id":"l","ranks":[{"rank":0,"entries":[%s]},{"rank":1,"entries":[%s]}]}`, c.first, c.second)
		var out bytes.Buffer
		good, err := judgeLayout(c.name, raw, &out)
		if err != nil || good != c.good {
			t.Errorf("%s: good %t, %v\n%s", c.name, good, err, out.String())
		}
	}
	bad := entry("[[0,3],[0,2]]", "[2,2]", "[2,1]")
	raw := fmt.Appendf(nil, `{"schema":"refit.layouts.v1","id":"l","ranks":[{"rank":0,"entries":[%s]}]}`, bad)
	if _, err := judgeLayout("l", raw, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "local shape [2 2]") {
		t.Errorf("a box of another size than its shard: %v", err)
	}
}

// TestClassicDifferences: each figure that differs from the reference's is told with both values.
func TestClassicDifferences(t *testing.T) {
	t.Parallel()
	ours := plan.ClassicCounts{DescriptorCount: 3, BytesPlanned: 30, ExactDescriptorCount: 4, ExactBytes: 40, Fallback: []string{"f"}, FullPulls: []string{"p"}, Unbounded: []string{"u"}, Sessions: []int{0, 2}}
	theirs := goldenPeer{Descriptors: 3, Bytes: 30, ExactDescriptors: 4, ExactBytes: 40, Fallback: []string{"f"}, FullPulls: []string{"p"}, Unbounded: []string{"u"}, Sessions: []string{"b", "a"}}
	ranks := map[string]int{"a": 0, "b": 2}
	if diff := theirs.differs(&ours, ranks); diff != "" {
		t.Errorf("equal figures differ: %s", diff)
	}
	for _, c := range []struct {
		change func(p *goldenPeer)
		says   string
	}{
		{func(p *goldenPeer) { p.Descriptors++ }, "3 descriptors, the reference has 4"},
		{func(p *goldenPeer) { p.Bytes++ }, "30 bytes"},
		{func(p *goldenPeer) { p.ExactDescriptors++ }, "4 exact descriptors"},
		{func(p *goldenPeer) { p.ExactBytes++ }, "40 exact bytes"},
		{func(p *goldenPeer) { p.Fallback = nil }, "fallback [f]"},
		{func(p *goldenPeer) { p.FullPulls = nil }, "full pulls [p]"},
		{func(p *goldenPeer) { p.Unbounded = nil }, "unbounded [u]"},
		{func(p *goldenPeer) { p.Sessions = p.Sessions[:1] }, "sessions [0 2]"},
	} {
		p := theirs
		c.change(&p)
		if diff := p.differs(&ours, ranks); !strings.Contains(diff, c.says) {
			t.Errorf("got %q, expected %q", diff, c.says)
		}
	}
}

// TestPeelingNamesWhatItDrops: refusals of several copies at once leave the others to be judged, and no case of the
// small golden sets needs more than its own copies' faults to end.
func TestPeelingNamesWhatItDrops(t *testing.T) {
	t.Parallel()
	raw, err := readFile("testdata/plan_cases2.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	var f goldenFile
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	refused, stayed := 0, 0
	for i := range f.Cases {
		j := caseJudge{c: &f.Cases[i], fill: f.Fill, t: &tally{}}
		if err := j.judge(); err != nil {
			t.Fatalf("case %s: %v", f.Cases[i].ID, err)
		}
		for k := range j.gone {
			if j.gone[k] {
				refused++
			} else {
				stayed++
			}
		}
	}
	if refused == 0 || stayed == 0 {
		t.Errorf("%d copies refused, %d left", refused, stayed)
	}
}

// sumOf returns the SHA-256 of bytes, hex.
func sumOf(b ...byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
