package proof

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/capturegen"
)

// chain decodes ops as a capture file writes them.
func chain(t *testing.T, text string) []capturegen.Op {
	t.Helper()
	var ops []capturegen.Op
	if err := json.Unmarshal([]byte(text), &ops); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return ops
}

func TestOps(t *testing.T) {
	t.Parallel()
	tests := []struct {
		shape []int64
		ops   string
		want  string // shape and index list
	}{
		{[]int64{2, 3}, `[]`, "[2 3] [0 1 2 3 4 5]"},
		{[]int64{2, 3}, `[["narrow",[1,-2,2]]]`, "[2 2] [1 2 4 5]"},
		{[]int64{2, 3}, `[["select",[0,-1]]]`, "[3] [3 4 5]"},
		{[]int64{2, 3}, `[["__getitem__",[{"int":1},{"slice":[null,null,2]}]]]`, "[2] [3 5]"},
		{[]int64{2, 3}, `[["__getitem__",[{"ellipsis":true},{"none":true},{"int":0}]]]`, "[2 1] [0 3]"},
		{[]int64{2, 3}, `[["__getitem__",[{"slice":[-1,9,null]}]]]`, "[1 3] [3 4 5]"},
		{[]int64{5}, `[["chunk",[2]],["__getitem__",[{"int":1}]]]`, "[2] [3 4]"},
		{[]int64{0}, `[["chunk",[3]],["__getitem__",[{"int":2}]]]`, "[0] []"},
		{[]int64{5}, `[["split",[2,0]],["__getitem__",[{"int":-1}]]]`, "[1] [4]"},
		{[]int64{5}, `[["split",[[1,4]]],["__getitem__",[{"int":1}]]]`, "[4] [1 2 3 4]"},
		{[]int64{2, 3}, `[["unbind",[1]],["__getitem__",[{"int":2}]]]`, "[2] [2 5]"},
		{[]int64{2, 3}, `[["unsqueeze",[0]],["unbind",[]],["__getitem__",[{"int":0}]]]`, "[2 3] [0 1 2 3 4 5]"},
		{[]int64{2, 3}, `[["index_select",[1,[2,0]]]]`, "[2 2] [2 0 5 3]"},
		{[]int64{2, 3}, `[["view",[3,-1]]]`, "[3 2] [0 1 2 3 4 5]"},
		{[]int64{2, 3}, `[["reshape",[[6]]]]`, "[6] [0 1 2 3 4 5]"},
		{[]int64{2, 3}, `[["t",[]]]`, "[3 2] [0 3 1 4 2 5]"},
		{[]int64{3}, `[["t",[]]]`, "[3] [0 1 2]"},
		{[]int64{2, 1, 3}, `[["transpose",[0,-1]],["squeeze",[1]]]`, "[3 2] [0 3 1 4 2 5]"},
		{[]int64{2, 1, 3}, `[["permute",[2,0,1]],["squeeze",[]]]`, "[3 2] [0 3 1 4 2 5]"},
		{[]int64{2, 3}, `[["squeeze",[0]],["contiguous",[]]]`, "[2 3] [0 1 2 3 4 5]"},
		{[]int64{2, 2, 2}, `[["flatten",[1]]]`, "[2 4] [0 1 2 3 4 5 6 7]"},
		{[]int64{}, `[["flatten",[]]]`, "[1] [0]"},
		{[]int64{}, `[["unsqueeze",[0]]]`, "[1] [0]"},
	}
	for _, test := range tests {
		v, err := replay(test.shape, chain(t, test.ops))
		if got := fmt.Sprint(v.shape, v.index); err != nil || got != test.want {
			t.Errorf("%v %s: got %s, %v, want %s", test.shape, test.ops, got, err, test.want)
		}
	}
}

func TestOpsRefuse(t *testing.T) {
	t.Parallel()
	for _, ops := range []string{
		`[["narrow",[0,1]]]`, `[["narrow",[2,0,1]]]`, `[["narrow",[0,1,2]]]`, `[["narrow",["x",0,1]]]`,
		`[["select",[0]]]`, `[["select",[5,0]]]`, `[["select",[0,2]]]`,
		`[["chunk",[0]]]`, `[["chunk",[1,2,3]]]`, `[["chunk",[2]]]`, `[["chunk",[2]],["t",[]]]`, `[["chunk",[2]],["__getitem__",[{"int":2}]]]`,
		`[["split",[0]]]`, `[["split",[[1,4]]]]`, `[["split",[[1]]]]`, `[["split",[["x"]]]]`, `[["split",[[2],7]]]`, `[["split",[]]]`, `[["unbind",[4]]]`,
		`[["__getitem__",[{"int":0},{"int":0},{"int":0}]]]`, `[["__getitem__",[{"list":[0]}]]]`, `[["__getitem__",[{"slice":[0,1]}]]]`,
		`[["__getitem__",[{"slice":[0,1,-1]}]]]`, `[["__getitem__",[{"int":7}]]]`,
		`[["index_select",[0]]]`, `[["index_select",["x",[0]]]]`, `[["index_select",[3,[0]]]]`, `[["index_select",[0,["x"]]]]`, `[["index_select",[0,[2]]]]`,
		`[["view",[4]]]`, `[["view",[-1,-1]]]`, `[["view",[-2,3]]]`, `[["view",["x"]]]`, `[["view",[4,-1]]]`,
		`[["flatten",[1,0]]]`, `[["flatten",[3]]]`, `[["flatten",["x"]]]`, `[["squeeze",["x"]]]`, `[["squeeze",[3]]]`,
		`[["unsqueeze",[]]]`, `[["unsqueeze",[4]]]`, `[["transpose",[0]]]`, `[["transpose",[0,2]]]`, `[["transpose",[2,0]]]`,
		`[["unsqueeze",[0]],["t",[]]]`, `[["permute",[0]]]`, `[["permute",[0,0]]]`, `[["permute",[0,2]]]`, `[["permute",["x",0]]]`,
		`[["expand",[2,3]]]`, `[["mul",[2]]]`,
	} {
		if v, err := replay([]int64{2, 3}, chain(t, ops)); err == nil || !strings.Contains(err.Error(), "op") {
			t.Errorf("%s: got %v, %v, want an error that names the op", ops, v, err)
		}
	}
	for _, shape := range [][]int64{{-1}, {1 << 16, 1 << 16}} {
		if _, err := replay(shape, nil); err == nil {
			t.Errorf("source of shape %v was accepted", shape)
		}
	}
}
