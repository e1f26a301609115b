package messages

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

var update = flag.Bool("update", false, "rewrite the goldens of testdata/golden")

// The messages of docs/wire.md's worked example: a model of two sources on one rank.
func exampleLayout() *Layout {
	return &Layout{
		Rank: 0, Regions: []int64{4096},
		Names: []string{"model.embed.weight", "model.norm.weight"}, DTypes: []DType{BF16, F32},
		ShapeEnd: []uint32{2, 3}, Shapes: []int64{6, 4, 4}, Grid: []int64{2, 4, 4},
		Source: []uint32{0, 1}, Region: []uint32{0, 0}, Offset: []int64{0, 64},
		Box: []int64{0, 3, 0, 4, 0, 4},
	}
}

func exampleEndpoint() *Endpoint {
	return &Endpoint{
		Rank: 0, Host: "node-a", Incarnation: "9f2c",
		Regions: []EndpointRegion{{Base: 0x7f1200000000, Nbytes: 4096}},
		Access:  []Access{{Transport: "tcp", Agent: "10.0.0.1:7700", Metadata: []byte{0xca, 0xfe}}},
	}
}

func exampleTable(tb testing.TB) *Table {
	tiles := mustEncode(tb, EncodeTiles, exampleTiles())
	return &Table{
		Model: "org/tiny", Key: Key{Run: 1, Version: 7}, Rank: 0, World: 1, Nbytes: 40,
		// Stand-ins: a real digest would change with the build of zstd.
		Layout:   Blob{Digest: protocol.Sum([]byte("layout")), Nbytes: 233},
		Endpoint: Blob{Digest: protocol.Sum([]byte("endpoint")), Nbytes: 195},
		Tiles:    Blob{Digest: protocol.Sum(tiles), Nbytes: int64(len(tiles)), Inline: tiles},
	}
}

func exampleTiles() *Tiles { return &Tiles{Digests: []uint64{0x0102030405060708, 2, 3}} }

func exampleManifest(tb testing.TB) *Manifest {
	t := exampleTable(tb)
	return &Manifest{Model: "org/tiny", Key: t.Key, World: 1, Ranks: []ManifestRank{{
		Table: protocol.Sum([]byte("table")), Layout: t.Layout.Digest, Endpoint: t.Endpoint.Digest,
		Tiles: t.Tiles.Digest, Nbytes: t.Nbytes,
	}}}
}

// examplePartial is the example's next version, in which only the second source changed.
func examplePartial(tb testing.TB) (*Table, *Manifest) {
	base := exampleManifest(tb).Ref()
	t, m := exampleTable(tb), exampleManifest(tb)
	t.Key.Version, t.Base, t.Changed = 8, &base, []uint32{1}
	m.Key.Version, m.Base = 8, &base
	return t, m
}

func mustEncode[T any](tb testing.TB, encode func(T) ([]byte, error), v T) []byte {
	tb.Helper()
	b, err := encode(v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

var exampleTime = time.UnixMilli(1700000000123).UTC()

// examples are the payloads of all schemas, by name.
func examples(tb testing.TB) map[string][]byte {
	key := Key{Run: 1, Version: 7}
	partialTable, partialManifest := examplePartial(tb)
	return map[string][]byte{
		"table-partial":    mustEncode(tb, EncodeTable, partialTable),
		"manifest-partial": mustEncode(tb, EncodeManifest, partialManifest),

		"layout":   mustEncode(tb, EncodeLayout, exampleLayout()),
		"endpoint": mustEncode(tb, EncodeEndpoint, exampleEndpoint()),
		"tiles":    mustEncode(tb, EncodeTiles, exampleTiles()),

		"tiles-bare": mustEncode(tb, EncodeTiles, &Tiles{Digests: []uint64{0x0102030405060708, 2, 0}, Bare: []uint32{1}}),

		"table":    mustEncode(tb, EncodeTable, exampleTable(tb)),
		"manifest": mustEncode(tb, EncodeManifest, exampleManifest(tb)),
		"ended":    mustEncode(tb, EncodeEnded, &Ended{Model: "org/tiny", Key: key, State: EndRetired, Reason: "withdrawn by rank 0", By: "node-a", At: exampleTime}),
		"run":      mustEncode(tb, EncodeRun, &RunRecord{Run: 1, Job: "train-42", Nonce: [16]byte{1, 2, 3}, World: 1, Taken: exampleTime}),
		"lease":    mustEncode(tb, EncodeLease, &LeaseRecord{Key: key, Receiver: "rollout-3", Holder: [16]byte{9}, Host: "node-b", TTL: 20 * time.Second}),
		"engine": mustEncode(tb, EncodeEngine, &EngineRecord{
			Engine: "big", Size: 2, Attempt: 3, Key: key, Phase: EngineInstalling, Served: Key{Run: 1, Version: 6}, ServedAttempt: 2, Roster: []string{"east", "west"},
			Members: []EngineMember{
				{Name: "east", Host: "node-a", Life: "5d01", Ranks: []int{0}, Files: []string{"/shm/rank-0"}, Installed: true},
				{Name: "west", Host: "node-b", Life: "77fe", Ranks: []int{1}, Files: []string{"/shm/rank-1"}},
			},
		}),
		"order": mustEncode(tb, EncodeOrder, &Order{N: 1, To: key, Reason: "evals fell", By: "alice", At: exampleTime}),
		"status": mustEncode(tb, EncodeStatus, &Status{
			Role: RoleReceiver, Name: "rollout-3", Host: "node-b", Ranks: []int{0, 1}, Updated: exampleTime,
			Serving: Key{Run: 1, Version: 6}, Staging: key, StageState: "reading", Arenas: []string{"arena-a", "arena-b"},
			Failure: &Failure{Class: "lease-lost", Text: "renewal refused", Key: Key{Run: 1, Version: 5}, At: exampleTime},
			Skipped: []Key{{Run: 1, Version: 4}},
		}),
	}
}

// TestGoldens compares every schema's example with its annotated hex, after
// decompression: zstd's output may differ between builds, msgpack's may not.
func TestGoldens(t *testing.T) {
	t.Parallel()
	for name, payload := range examples(t) {
		plain, err := expand("golden", payload, fresh)
		if err != nil {
			t.Fatal(err)
		}
		drawn := annotate(plain)
		path := filepath.Join("testdata", "golden", name+".hex")
		if *update {
			if err := os.WriteFile(path, []byte(drawn), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != drawn {
			t.Errorf("%s differs from %s; run with -update if the change is meant:\n%s", name, path, drawn)
		}
		if got := unannotate(t, string(want)); !bytes.Equal(got, plain) {
			t.Errorf("%s: the golden's bytes are not the payload", path)
		}
	}
}

// annotate draws a msgpack value, one item a line, with what it is.
func annotate(b []byte) string {
	var out strings.Builder
	pos := 0
	var walk func(depth int, key bool)
	walk = func(depth int, key bool) {
		start := pos
		it, err := next(b, &pos)
		if err != nil {
			fmt.Fprintf(&out, "# %v\n", err)
			return
		}
		fmt.Fprintf(&out, "%-48s # %s%s\n", spaced(b[start:pos]), strings.Repeat("  ", depth), describe(b[start:pos], it, key))
		for i := range it.children {
			walk(depth+1, it.isMap && i%2 == 0)
		}
	}
	walk(0, false)
	return out.String()
}

func spaced(b []byte) string {
	if len(b) <= 16 {
		return strings.TrimSpace(fmt.Sprintf("% x", b))
	}
	return hex.EncodeToString(b)
}

func describe(raw []byte, it item, key bool) string {
	switch c := raw[0]; {
	case it.isMap:
		return fmt.Sprintf("map of %d", it.children/2)
	case it.children > 0 || c == 0x90:
		return fmt.Sprintf("array of %d", it.children)
	case key:
		return text(raw) + ":"
	case it.isString:
		return fmt.Sprintf("%q", text(raw))
	case c >= 0xc4 && c <= 0xc6:
		return fmt.Sprintf("%d bytes", len(raw)-1-1<<(c-0xc4))
	case c == 0xc2 || c == 0xc3:
		return fmt.Sprint(c == 0xc3)
	case c < 0x80:
		return fmt.Sprint(c)
	}
	n := uint64(0)
	for _, c := range raw[1:] {
		n = n<<8 | uint64(c)
	}
	return fmt.Sprint(n)
}

func text(raw []byte) string {
	switch c := raw[0]; {
	case c < 0xc0:
		return string(raw[1:])
	default:
		return string(raw[1+1<<(c-0xd9):])
	}
}

func unannotate(tb testing.TB, s string) []byte {
	tb.Helper()
	var out []byte
	for line := range strings.Lines(s) {
		digits, _, _ := strings.Cut(line, "#")
		b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(digits), " ", ""))
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

// TestWirePageNamesEveryField: nothing is on the wire that the page doesn't tell.
func TestWirePageNamesEveryField(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	for schema, structs := range map[string][]any{
		layoutSchema: {wireLayout{}, wireSources{}, wireGroup{}}, tableSchema: {wireTable{}, wireBlob{}, wireRef{}},
		endpointSchema: {wireEndpoint{}, wireAccess{}}, tilesSchema: {wireTiles{}}, manifestSchema: {wireManifest{}}, endedSchema: {wireEnded{}},
		runSchema: {wireRun{}}, leaseSchema: {wireLease{}}, statusSchema: {wireStatus{}, wireFailure{}, wireSlot{}, wireKey{}},
		engineSchema: {wireEngine{}, wireEngineMember{}, wireKey{}}, orderSchema: {wireOrder{}},
	} {
		_, section, found := strings.Cut(string(page), "### "+schema+"\n")
		if !found {
			t.Errorf("docs/wire.md has no section on %s", schema)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, s := range structs {
			for f := range reflect.TypeOf(s).Fields() {
				tag, _, _ := strings.Cut(f.Tag.Get("msgpack"), ",")
				if tag != "" && tag != "-" && tag != "schema" && !strings.Contains(section, "`"+tag) {
					t.Errorf("the section on %s does not name `%s`", schema, tag)
				}
			}
		}
	}
}

// TestWirePageShowsGoldens keeps the worked example of docs/wire.md true.
func TestWirePageShowsGoldens(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"layout", "manifest"} {
		golden, err := os.ReadFile(filepath.Join("testdata", "golden", name+".hex"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), string(golden)) {
			t.Errorf("docs/wire.md does not show testdata/golden/%s.hex as it is", name)
		}
	}
}
