package plan_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

const smallCapture = `{"schema":"drydock.capture.v1","engine":"e 1","family":"f","config":{"a":1},
"sources":[{"name":"w","dtype":"BF16","shape":[4,6]},{"name":"b","dtype":"bfloat16","shape":[4]}],
"cases":[{"arch":"A","tp":2,"rank":1,"ep":false,
"params":[{"name":"p","dtype":"BF16","shape":[4,4],"xxh3_64":"0","sha256":"0"},{"name":"x","dtype":"F32","shape":[1],"excluded":"arithmetic"}],
"copies":[[0,[["narrow",[1,3,3]]],0,0,[4,3],[4,1]],[0,[["__getitem__",[{"slice":[null,null,2]},{"ellipsis":true},{"int":-1}]],["unsqueeze",[0]]],0,3,[1,2],[8,8]]],
"fills":[[0,7,[2],[8],0.5]],"alias":{"q":"p"},"unread":[1]}]}`

func TestDecodeCapture(t *testing.T) {
	t.Parallel()
	var z bytes.Buffer
	g := gzip.NewWriter(&z)
	if _, err := g.Write([]byte(smallCapture)); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	for _, raw := range [][]byte{[]byte(smallCapture), z.Bytes()} {
		c, err := plan.DecodeCapture(raw)
		if err != nil {
			t.Fatal(err)
		}
		d, err := c.Dest(2, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		if n := d.LayOut(0); n != 32 || d.Rank != 1 || !d.Reorders || d.Alias["q"] != "p" || d.Params[1].Excluded != "arithmetic" || c.Cases[0].Unread[0] != "b" {
			t.Errorf("arena of %d bytes, %+v", n, d)
		}
		w := holding("w", plan.BF16, []int64{4, 6}, map[int][][]int64{0: {{0, 4, 0, 6}}})
		_, got := perform(t, w, merged(t, w), plan.Options{}, map[string][]byte{"w": plantest.Bytes(48, 3)}, d)
		if got[0][14] != 0 || got[0][15] != 0x3f {
			t.Errorf("the fill is %x, expected 003f", got[0][14:16])
		}
		if _, err := c.Dest(2, 0, false); err == nil {
			t.Error("a case that is not there was found")
		}
	}
}

// TestBadCaptures: each is refused and says what is wrong with it.
func TestBadCaptures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ old, new, says string }{
		{"capture.v1", "capture.v2", "schema"},
		{`"copies":[[0,`, `"copies":[[2,`, "source 2 of 2"},
		{`"copies":[[0,`, `"copies":[["w",`, "copy 0"},
		{`[4,3],[4,1]]`, `[4,3]]`, "5 values, expected 6"},
		{`"dtype":"BF16"`, `"dtype":"BF17"`, "BF17"},
		{`"shape":[4,6]`, `"shape":[4,-6]`, "[4 -6]"},
		{`"shape":[4,6]`, `"shape":[4611686018427387904,4]`, "overflow"},
		{`"shape":[4,6]`, `"shape":[1,1,1,1,1,1,1,1,1]`, "limit"},
		{`[["narrow",[1,3,3]]]`, `[["narrow",[1,3,3],5]]`, "op 0"},
		{`{"slice":[null,null,2]}`, `{"slice":[null,2]}`, "slice of 2"},
		{`"fills":[[0,`, `"fills":[[0,0,`, "fill 0"},
		{`"unread":[1]`, `"unread":[9]`, "unread source 9"},
		{`"cases"`, `"cases`, ""},
	} {
		bad := strings.Replace(smallCapture, c.old, c.new, 1)
		if bad == smallCapture {
			t.Fatalf("%q does not occur", c.old)
		}
		_, err := plan.DecodeCapture([]byte(bad))
		if !errors.Is(err, plan.ErrCapture) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s instead of %s: got %v", c.new, c.old, err)
		}
	}
	if _, err := plan.DecodeCapture([]byte{0x1f, 0x8b, 0, 0}); !errors.Is(err, plan.ErrCapture) {
		t.Errorf("broken gzip: got %v", err)
	}
}

// FuzzDecodeCapture: whatever the bytes, a capture or an error, and what was decoded can be planned or refused.
func FuzzDecodeCapture(f *testing.F) {
	f.Add([]byte(smallCapture))
	if raw, err := os.ReadFile(filepath.Join("..", "..", "internal", "oracle", "testdata", "capture_qwen35-text.json.gz")); err == nil {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := plan.DecodeCapture(raw)
		if err != nil {
			return
		}
		w := &plantest.World{}
		for i := range c.Sources {
			s := &c.Sources[i]
			if i > 100 || plantest.Nelems(s.Shape) > 1<<20 {
				return
			}
			box := make([]int64, 0, 2*len(s.Shape))
			for _, n := range s.Shape {
				box = append(box, 0, n)
			}
			w.AddShard(0, s.Name, s.DType, s.Shape, box, nil, plantest.Nelems(s.Shape)*s.DType.Size())
		}
		tab, err := plan.Merge(w.Layouts)
		if err != nil {
			return
		}
		for i := range c.Cases {
			if i > 10 || len(c.Cases[i].Copies) > 1000 {
				return
			}
			d, err := c.Dest(c.Cases[i].TP, c.Cases[i].Rank, c.Cases[i].EP)
			if err != nil {
				t.Fatal(err)
			}
			huge := false
			for k := range d.Params {
				huge = huge || plantest.Nelems(d.Params[k].Shape) > 1<<24
			}
			if huge {
				return
			}
			d.LayOut(0)
			if p, err := plan.New(tab, []plan.Dest{d}, plan.Options{}); err == nil {
				_ = p.Describe()
			}
		}
	})
}

// TestMissingCaseIsNamedWithThoseThatExist: who asks for the wrong rank sees which there are.
func TestMissingCaseIsNamedWithThoseThatExist(t *testing.T) {
	t.Parallel()
	c := plan.Capture{Family: "f", Cases: []plan.CaptureCase{{TP: 2, Rank: 1}, {TP: 4, Rank: 3, EP: true}}}
	if _, err := c.Dest(2, 0, false); err == nil || !strings.Contains(err.Error(), "ranks 1 of 2, 3 of 4 ep") {
		t.Errorf("got %v", err)
	}
	if _, err := (&plan.Capture{}).Dest(1, 0, false); err == nil || !strings.Contains(err.Error(), "it has none") {
		t.Errorf("got %v", err)
	}
}

// TestCapturesOfPython: what Python's json module writes and JSON has no words for is read as it is meant: fills with
// infinities, bounds beyond 64 bits, NaN where nobody looks.
func TestCapturesOfPython(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		old, new string
		says     string // "": it is read
		check    func(c *plan.Capture) bool
	}{
		{`[8],0.5]`, `[8],-Infinity]`, "", func(c *plan.Capture) bool { return math.IsInf(c.Cases[0].Fills[0].Value, -1) }},
		{`[8],0.5]`, `[8],Infinity]`, "", func(c *plan.Capture) bool { return math.IsInf(c.Cases[0].Fills[0].Value, 1) }},
		{`[8],0.5]`, `[8],NaN]`, "", func(c *plan.Capture) bool { return math.IsNaN(c.Cases[0].Fills[0].Value) }},
		{`[8],0.5]`, `[8],"NaN"]`, "", func(c *plan.Capture) bool { return math.IsNaN(c.Cases[0].Fills[0].Value) }},
		{`{"a":1}`, `{"rope":NaN,"s":"a \"NaN\" -Infinity"}`, "", func(c *plan.Capture) bool {
			return string(c.Config) == `{"rope":"NaN","s":"a \"NaN\" -Infinity"}`
		}},
		{`[null,null,2]`, `[-99999999999999999999,99999999999999999999,2]`, "", func(c *plan.Capture) bool {
			a := c.Cases[0].Copies[1].Ops[0].Args[0]
			return a.Kind == plan.ArgSlice && a.Start == math.MinInt64 && a.Stop == math.MaxInt64 && a.Step == 2
		}},
		{`[null,null,2]`, `[null,0.5,2]`, "", func(c *plan.Capture) bool {
			_, err := plan.ReplayShape([]int64{4, 6}, c.Cases[0].Copies[1].Ops) // read, and refused by the operation
			return errors.Is(err, plan.ErrView)
		}},
		{`[8],0.5]`, `[8],"0.5"]`, "fill 0", nil},
		{`[8],0.5]`, `[8],Inf]`, "invalid character", nil},
		{`[8],0.5]`, `[8],--Infinity]`, "invalid character", nil},
	} {
		raw := strings.Replace(smallCapture, c.old, c.new, 1)
		if raw == smallCapture {
			t.Fatalf("%q does not occur", c.old)
		}
		got, err := plan.DecodeCapture([]byte(raw))
		switch {
		case c.says != "":
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, expected %q", c.new, err, c.says)
			}
		case err != nil:
			t.Errorf("%s: %v", c.new, err)
		case !c.check(got):
			t.Errorf("%s: got %+v", c.new, got)
		}
	}
}

// TestIndicesFollowedBack: a gather by a list in between of other reorderings, performed and compared with doing it
// element by element.
func TestIndicesFollowedBack(t *testing.T) {
	t.Parallel()
	const n = 40
	list := make([]int64, 300)
	for i := range list {
		list[i] = int64(i*7) % n // some rows often, in no order
	}
	ops := []plan.Op{
		{Name: "index_select", Args: []plan.Arg{{Int: 0}, {Kind: plan.ArgInts, Ints: list}}},
		plantest.Op("transpose", 0, 1), plantest.Op("reshape", -1), stepped(0, 1, 900, 2),
	}
	d := plan.Dest{
		Reorders: true, Params: []plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{450}}},
		Copies: []plan.Copy{{Source: "x", Ops: ops, Shape: []int64{450}, Stride: []int64{1}}},
	}
	w := holding("x", plan.U8, []int64{n, 3}, map[int][][]int64{0: {{0, 17, 0, 3}}, 1: {{17, n, 0, 3}}})
	full := plantest.Bytes(3*n, 9)
	_, got := perform(t, w, merged(t, w), plan.Options{}, map[string][]byte{"x": full}, d)
	for i := range got[0] {
		flat := 2*i + 1 // of the transposed gather, 3 rows of 300
		if want := full[list[flat%300]*3+int64(flat/300)]; got[0][i] != want {
			t.Fatalf("byte %d is %d, expected %d", i, got[0][i], want)
		}
	}
	over := make([]int64, 1<<15)
	for i := range over {
		over[i] = int64(i*i*31) % n
	}
	ops[0].Args[1].Ints = over
	ops = ops[:1]
	d.Copies[0] = plan.Copy{Source: "x", Ops: ops, Shape: []int64{1 << 15, 3}, Stride: []int64{3, 1}}
	d.Params[0].Shape = []int64{3 << 15}
	refusal(t, merged(t, w), plan.Options{}, plan.ErrLimit, []plan.Dest{d}, "parts", `"p"`)
}
