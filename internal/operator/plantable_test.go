package operator

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// job is two ranks of a trainer: rows 0 and 1 of a tensor on one, row 2 on the other, beside a shared storage.
const job = `{"schema":"refit.layouts.v1","ranks":[
{"rank":0,"entries":[
 {"name":"a","dtype":"bfloat16","global_shape":[3,4],"box":[[0,2],[0,4]],"local_stride":[4,1],"storage_offset":0,"storage_bytes":16},
 {"name":"gate","dtype":"float32","global_shape":[2],"box":[[0,2]],"local_stride":[1],"storage_offset":0,"storage_bytes":16,"storage":"fc1"},
 {"name":"up","dtype":"float32","global_shape":[2],"box":[[0,2]],"local_stride":[1],"storage_offset":2,"storage_bytes":16,"storage":"fc1"}]},
{"rank":1,"entries":[
 {"name":"a","dtype":"bfloat16","global_shape":[3,4],"box":[[2,3],[0,4]],"local_stride":[4,1],"storage_offset":0,"storage_bytes":16}]}]}`

func written(t *testing.T, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTableOfAJob(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write([]byte(job)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for _, file := range []string{written(t, "job.json", []byte(job)), written(t, "job.json.gz", zipped.Bytes())} {
		table, err := FileTable([]string{file})
		if err != nil {
			t.Fatal(err)
		}
		up, ok := table.Find("up")
		if table.Len() != 3 || len(table.Ranks()) != 2 || !ok {
			t.Fatalf("%d sources of ranks %v, up: %t", table.Len(), table.Ranks(), ok)
		}
		if s := table.Shards(up); len(s) != 1 || s[0].Offset != 8 || s[0].Region != 1 {
			t.Errorf("up lies at %+v, expected behind gate in its region", s)
		}
	}
}

func TestTableOfBlobs(t *testing.T) {
	t.Parallel()
	var files []string
	for rank := range 2 {
		blob, err := messages.EncodeLayout(&messages.Layout{
			Rank: rank, Regions: []int64{8}, Names: []string{"a"}, DTypes: []messages.DType{2}, ShapeEnd: []uint32{2}, Shapes: []int64{2, 8},
			Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{0}, Box: []int64{int64(rank), int64(rank) + 1, 0, 8},
		})
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, written(t, "layout", blob))
	}
	table, err := FileTable(files)
	if err != nil || len(table.Shards(0)) != 2 {
		t.Fatalf("%v: %+v", err, table)
	}
}

func TestTableRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, says string }{
		{"no file", filepath.Join(t.TempDir(), "none"), "no such file"},
		{"neither kind", written(t, "x", []byte("hello")), "neither"},
		{"another schema", written(t, "x", []byte(`{"schema":"y"}`)), `schema "y"`},
		{"no type", written(t, "x", []byte(strings.Replace(job, "bfloat16", "float7", 1))), "rank 0, entry 0"},
		{"a box of another tensor", written(t, "x", []byte(strings.Replace(job, "[[0,2],[0,4]]", "[[0,2]]", 1))), `"a"`},
		{"beyond the shape", written(t, "x", []byte(strings.Replace(job, "[[2,3],[0,4]]", "[[2,4],[0,4]]", 1))), "merge"},
	} {
		if _, err := FileTable([]string{c.file}); err == nil || cli.Code(err) != cli.ExitInput || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
