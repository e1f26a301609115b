package fence

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// TestTree holds the fence on the repository itself.
func TestTree(t *testing.T) {
	t.Parallel()
	root := os.DirFS("../..")
	if _, err := root.Open("go.mod"); err != nil {
		t.Fatalf("the module's root is not two folders up: %v", err)
	}
	breaches, err := Check(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range breaches {
		t.Error(b)
	}
}

// TestBreaches breaks each law on purpose, and keeps to it in the way that comes closest.
func TestBreaches(t *testing.T) {
	t.Parallel()
	imports := func(paths ...string) string {
		return "package x\nimport (\n\"" + strings.Join(paths, "\"\n\"") + "\"\n)\n"
	}
	for _, c := range []struct {
		name, file, src string
		want            string // what the one breach names; empty: none
	}{
		{"sibling", "pkg/plan/a.go", imports(Module + "/pkg/messages"), "import of " + Module + "/pkg/messages"},
		{"sibling in a test", "pkg/rdma/a_test.go", imports(Module + "/pkg/plan"), "import of " + Module + "/pkg/plan"},
		{"sibling below", "pkg/rdma/rdmatest/a.go", imports(Module + "/pkg/tracing"), "import of " + Module + "/pkg/tracing"},
		{"refit from below", "pkg/tracing/a.go", imports(Module + "/pkg/refit"), "import of " + Module + "/pkg/refit"},
		{"internal from below", "pkg/messages/a.go", imports(Module + "/internal/tiles"), "import of " + Module + "/internal/tiles"},
		{"module itself", "pkg/messages/a.go", imports(Module), "import of " + Module},
		{"internal from a test", "pkg/messages/a_test.go", imports(Module + "/internal/natsd"), ""},
		{"internal from a test's folder", "pkg/messages/natstest/a.go", imports(Module + "/internal/natsd"), ""},
		{"program from a test", "pkg/messages/a_test.go", imports(Module + "/cmd/publisher"), "import of " + Module + "/cmd/publisher"},
		{"own subpackage", "pkg/rdma/a.go", imports(Module + "/pkg/rdma/internal/nixlsys"), ""},
		{"other module with the same beginning", "pkg/plan/a.go", imports(Module + "-extras/x"), ""},
		{"refit ties", "pkg/refit/a.go", imports(Module+"/pkg/plan", Module+"/pkg/rdma"), ""},
		{"program from a package", "internal/a/a.go", imports(Module + "/cmd/publisher"), "import of " + Module + "/cmd/publisher"},
		{"planner with a clock", "pkg/plan/a.go", imports("time"), "import of time"},
		{"planner with files", "pkg/plan/sub/a.go", imports("os/exec"), "import of os/exec"},
		{"planner's test with files", "pkg/plan/a_test.go", imports("os"), ""},
		{"proof with the planner", "internal/proof/a.go", imports(Module + "/pkg/plan"), "import of " + Module + "/pkg/plan"},
		{"unsafe", "pkg/rdma/a.go", imports("unsafe"), "import of unsafe"},
		{"unsafe in a test", "cmd/receiver/a_test.go", imports("unsafe"), "import of unsafe"},
		{"cgo", "pkg/rdma/a.go", imports("C"), "import of C"},
		{"purego", "internal/a.go", imports("github.com/ebitengine/purego"), "import of github.com/ebitengine/purego"},
		{"unsafe in its place", "pkg/rdma/internal/nixlsys/a.go", imports("unsafe", "github.com/ebitengine/purego"), ""},
		{"unsafe behind a build tag", "pkg/rdma/a.go", "//go:build ignore\n\n" + imports("unsafe"), "import of unsafe"},
		{"flags", "pkg/refit/a.go", imports("flag"), "import of flag"},
		{"flags of a program", "cmd/receiver/a.go", imports("flag"), ""},
		{"environment", "pkg/rdma/a.go", imports("os") + "var x = os.Getenv(\"X\")", "use of os.Getenv"},
		{"environment as a value", "pkg/rdma/a.go", imports("os") + "var x = os.LookupEnv", "use of os.LookupEnv"},
		{"environment renamed", "pkg/rdma/a.go", "package x\nimport sys \"os\"\nvar x = sys.Environ()", "use of os.Environ"},
		{"another os", "pkg/rdma/a.go", "package x\nvar os struct{ Getenv int }\nvar x = os.Getenv", ""},
		{"environment of the recorder", "pkg/tracing/a.go", imports("os") + "var x = os.Getenv", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := Check(fstest.MapFS{c.file: {Data: []byte(c.src)}})
			if err != nil {
				t.Fatal(err)
			}
			if want := c.want; want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[0].What != want) {
				t.Errorf("%s:\n%s\ngot  %v\nwant %q", c.file, c.src, got, want)
			}
		})
	}
}

// TestSkipped leaves alone what is not this module's source.
func TestSkipped(t *testing.T) {
	t.Parallel()
	bad := &fstest.MapFile{Data: []byte("package x\nimport \"unsafe\"\n")}
	got, err := Check(fstest.MapFS{
		"testdata/a.go":       bad,
		".cache/a.go":         bad,
		"_old/a.go":           bad,
		"vendor/v/a.go":       bad,
		"tools/go.mod":        {Data: []byte("module t\n")},
		"tools/a.go":          bad,
		"pkg/plan/testdata/a": bad,
	})
	if err != nil || len(got) > 0 {
		t.Errorf("got %v, %v, want nothing", got, err)
	}
}

// TestUnreadable names the file that does not parse.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	_, err := Check(fstest.MapFS{"pkg/plan/broken.go": {Data: []byte("package")}})
	if err == nil || !strings.Contains(err.Error(), "pkg/plan/broken.go") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func ExampleCheck() {
	breaches, err := Check(fstest.MapFS{
		"pkg/plan/clock.go": {Data: []byte("package plan\n\nimport \"time\"\n\nvar start = time.Now()\n")},
	})
	fmt.Println(breaches, err)
	// Output: [pkg/plan/clock.go:3:8: import of time: the planner is pure: no I/O, no clock, equal inputs give equal plans] <nil>
}
