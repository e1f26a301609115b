package capturegen

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/checkpoint"
)

// oneCase wraps parameters, copies and so on of a single case into a file. The source is w, BF16 [2,3].
func oneCase(rest string) string {
	return `{"schema":"drydock.capture.v1","family":"f","sources":[{"name":"w","dtype":"BF16","shape":[2,3]}],"cases":[{"tp":1,"rank":0,"ep":false,` +
		`"params":[{"name":"p","dtype":"BF16","shape":[2,3]},{"name":"x","dtype":"F32","shape":[1],"excluded":"exp"}],` + rest + `}]}`
}

func TestDecodeAccepts(t *testing.T) {
	t.Parallel()
	text := oneCase(`"copies":[[0,[["__getitem__",[{"slice":[0,null,1]},{"int":-1}]],["permute",[1,0]],["split",[[1,2],0]]],0,1,[2],[3]]],"fills":[[0,0,[2,2],[3,1],0.5]],"alias":{"q":"p"}`)
	c, err := Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	x := c.Cases[0]
	want := "[{0 [{__getitem__ [map[slice:[0 <nil> 1]] map[int:-1]]} {permute [1 0]} {split [[1 2] 0]}] 0 {1 [2] [3]}}]"
	if got := fmt.Sprint(x.Copies); got != want {
		t.Errorf("copies %s\nwant   %s", got, want)
	}
	if _, isInt := x.Copies[0].Ops[1].Args[0].(int64); !isInt || x.Fills[0].Value != 0.5 || x.Params[1].Excluded != "exp" || x.Alias["q"] != "p" {
		t.Errorf("case %+v", x)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	place := func(place string) string { return oneCase(`"copies":[[0,[],0,` + place + `]]`) }
	tests := []struct{ name, text, says string }{
		{"no JSON", `{`, "decode capture"},
		{"other schema", `{"schema":"v2"}`, `"v2"`},
		{"broken gzip", "\x1f\x8b\x00", "inflate"},
		{"source twice", `{"schema":"drydock.capture.v1","sources":[{"name":"w","dtype":"U8","shape":[]},{"name":"w","dtype":"U8","shape":[]}]}`, "source w appears twice"},
		{"source without name", `{"schema":"drydock.capture.v1","sources":[{"dtype":"U8","shape":[]}]}`, "expected a name"},
		{"source of bits", `{"schema":"drydock.capture.v1","sources":[{"name":"w","dtype":"F4","shape":[2]}]}`, `"F4"`},
		{"negative shape", `{"schema":"drydock.capture.v1","sources":[{"name":"w","dtype":"U8","shape":[-2]}]}`, "negative"},
		{"rank beyond tp", `{"schema":"drydock.capture.v1","cases":[{"tp":2,"rank":2}]}`, "rank 2"},
		{"parameter twice", `{"schema":"drydock.capture.v1","cases":[{"tp":1,"params":[{"name":"p","dtype":"U8","shape":[]},{"name":"p","dtype":"U8","shape":[]}]}]}`, "parameter p appears twice"},
		{"parameter dtype", `{"schema":"drydock.capture.v1","cases":[{"tp":1,"params":[{"name":"p","dtype":"Q","shape":[]}]}]}`, `"Q"`},
		{"short copy", oneCase(`"copies":[[0,[],0,0,[6]]]`), "5 fields, expected 6"},
		{"copy of text", oneCase(`"copies":[["w",[],0,0,[6],[1]]]`), "decode copy"},
		{"copy is no list", oneCase(`"copies":[7]`), "decode copy"},
		{"fraction in op", oneCase(`"copies":[[0,[["narrow",[0,0.5,1]]],0,0,[6],[1]]]`), "0.5"},
		{"fraction in slice", oneCase(`"copies":[[0,[["__getitem__",[{"slice":[0.5,null,null]}]]],0,0,[6],[1]]]`), "0.5"},
		{"op arguments", oneCase(`"copies":[[0,[["narrow",7]],0,0,[6],[1]]]`), "op narrow"},
		{"unknown source", oneCase(`"copies":[[1,[],0,0,[6],[1]]]`), "source 1"},
		{"unknown parameter", oneCase(`"copies":[[0,[],2,0,[6],[1]]]`), "parameter 2"},
		{"excluded parameter", oneCase(`"copies":[[0,[],1,0,[1],[1]]]`), "excluded (exp)"},
		{"fill outside", oneCase(`"fills":[[0,6,[1],[1],0]]`), "fill 0"},
		{"alias of nothing", oneCase(`"alias":{"q":"r"}`), "alias q of r"},
		{"alias of itself", oneCase(`"alias":{"p":"p"}`), "alias p"},
		{"shape and stride", place(`0,[2,3],[1]`), "don't belong together"},
		{"negative offset", place(`-1,[1],[1]`), "don't belong together"},
		{"negative stride", place(`5,[2],[-1]`), "leave"},
		{"negative extent", place(`0,[-2],[1]`), "leave"},
		{"past the end", place(`1,[2,3],[3,1]`), "leave its 6 elements"},
		{"offset past the end", place(`6,[],[]`), "leave its 6 elements"},
		{"overflow", place(`0,[9223372036854775807],[9223372036854775807]`), "leave its 6 elements"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if _, err := Decode([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want a message with %q", err, test.says)
			}
		})
	}
}

func TestCaseIsNamed(t *testing.T) {
	t.Parallel()
	c, err := FromSources(nil, checkpoint.Config{}, 9)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Case(2, 1, true); err == nil || !strings.Contains(err.Error(), "tensor parallel 2, rank 1") || !strings.Contains(err.Error(), "tp 9 rank 0") {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(oneCase(`"copies":[[0,[["narrow",[0,0,1]]],0,0,[2,3],[3,1]]],"fills":[[0,0,[1],[1],1]],"alias":{"q":"p"}`)))
	if b, err := os.ReadFile("testdata/captures/llama.json.gz"); err == nil {
		if r, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
			var text bytes.Buffer
			if _, err := text.ReadFrom(r); err == nil {
				f.Add(text.Bytes())
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := c.Encode(&again); err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(again.Bytes()); err != nil {
			t.Fatalf("what was encoded is refused: %v", err)
		}
	})
}
