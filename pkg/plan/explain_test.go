package plan

import "testing"

// TestOpsAreWrittenAsInPython: an explanation shows a chain as somebody would type it.
func TestOpsAreWrittenAsInPython(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ops, want string }{
		{`[]`, "source"},
		{`[["narrow",[1,-2,2]]]`, "source.narrow(1, -2, 2)"},
		{`[["__getitem__",[{"slice":[null,null,2]},{"ellipsis":true},{"none":true},{"int":-1}]]]`, "source[::2, ..., None, -1]"},
		{`[["__getitem__",[{"slice":[1,null,null]},{"slice":[null,-1,null]}]]]`, "source[1:, :-1]"},
		{`[["split",[[4,0,4],-2]],["__getitem__",[{"int":1}]]]`, "source.split([4, 0, 4], -2)[1]"},
		{`[["t",[]],["reshape",[-1]],["index_select",[0,[3,1]]]]`, "source.t().reshape(-1).index_select(0, [3, 1])"},
		{`[["view",[{"dtype":"int8"}]]]`, "source.view(int8)"},
	} {
		ops, err := DecodeOps([]byte(c.ops))
		if err != nil {
			t.Fatal(err)
		}
		if got := opsString(ops); got != c.want {
			t.Errorf("%s: got %s, expected %s", c.ops, got, c.want)
		}
	}
}

// TestBytesForPeople are written in powers of a thousand.
func TestBytesForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.00 kB", 1234567: "1.23 MB", 15e9: "15.00 GB", 2e15: "2.00 PB", 5e18: "5000.00 PB",
	} {
		if got := nbytesString(n); got != want {
			t.Errorf("%d: got %s, expected %s", n, got, want)
		}
	}
}

// TestBoxAround compares the smallest box around a range of bytes with looking at every element in it.
func TestBoxAround(t *testing.T) {
	t.Parallel()
	q := Param{DType: BF16, Shape: []int64{3, 4, 5}}
	for lo := range q.nelems() {
		for hi := lo + 1; hi <= q.nelems(); hi++ {
			want := []int64{9, 0, 9, 0, 9, 0}
			for e := lo; e < hi; e++ {
				for d, x := range []int64{e / 20, e / 5 % 4, e % 5} {
					want[2*d], want[2*d+1] = min(want[2*d], x), max(want[2*d+1], x+1)
				}
			}
			got := q.boxAround(2*lo, 2*hi)
			for d := range 3 { // the box may be larger than need be, never smaller, and exact in one row
				if got[2*d] > want[2*d] || got[2*d+1] < want[2*d+1] || lo/5 == (hi-1)/5 && (got[2*d] != want[2*d] || got[2*d+1] != want[2*d+1]) {
					t.Fatalf("elements [%d, %d): got %s, the smallest is %s", lo, hi, boxString(got), boxString(want))
				}
			}
		}
	}
}
