package doctor

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func byName(fs []Finding) map[string]Finding {
	out := map[string]Finding{}
	for _, f := range fs {
		out[f.Name] = f
	}
	return out
}

func TestEveryFindingSaysWhatItFoundAndWhatToDo(t *testing.T) {
	t.Parallel()
	fs := Run(t.Context(), Options{Nixl: nixl.Config{Library: "/nowhere/libnixl_capi.so"}})
	if len(fs) != 14 {
		t.Errorf("%d findings", len(fs))
	}
	for _, f := range fs {
		if f.Name == "" || f.Found == "" || f.Status != OK && f.Advice == "" {
			t.Errorf("%+v", f)
		}
	}
	got := byName(fs)
	if f := got["tcp transport"]; f.Status != OK {
		t.Errorf("%+v", f)
	}
	if f := got["nixl"]; f.Status != None || !strings.Contains(f.Found, "/nowhere") {
		t.Errorf("%+v", f)
	}
	var b bytes.Buffer
	if err := WriteText(&b, fs); err != nil || strings.Count(b.String(), "\n") < len(fs) {
		t.Errorf("%v: %s", err, b.String())
	}
}

func TestMeasuredCostsAreShown(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "costs.json")
	if f := measuredCosts(&Options{Costs: path}); f.Status != None || !strings.Contains(f.Found, path) {
		t.Errorf("without a file: %+v", f)
	}
	if err := rdma.SaveCosts(path, []rdma.Cost{{Transport: "tcp", Alpha: 2e-8, Beta: 5e-10}}); err != nil {
		t.Fatal(err)
	}
	if f := measuredCosts(&Options{Costs: path}); f.Status != OK || !strings.Contains(f.Found, "tcp (20 ns a run, 2.00 GB/s)") {
		t.Errorf("with a file: %+v", f)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := measuredCosts(&Options{Costs: path}); f.Status != Warn || f.Advice == "" {
		t.Errorf("with a broken file: %+v", f)
	}
}

// TestUCXTransportsAreTriedOneByOne needs the library; without it there is nothing to try.
func TestUCXTransportsAreTriedOneByOne(t *testing.T) {
	t.Parallel()
	found, _ := filepath.Glob("../../.cache/nixl/*/.nixl_cu1*.mesonpy.libs/libnixl_capi.so")
	if len(found) == 0 {
		if os.Getenv("DRYDOCK_REQUIRE_NIXL") == "1" {
			t.Fatal("no library: make nixl fetches it")
		}
		t.Skip("no library: make nixl fetches it")
	}
	f := ucxTransports(&Options{Nixl: nixl.Config{Library: found[0], Env: quiet}})
	if works, _, _ := strings.Cut(f.Found, "; not:"); !strings.Contains(works, "tcp") {
		t.Errorf("tcp doesn't work: %+v", f)
	}
}

func TestFindingsOfAnotherHost(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for path, text := range map[string]string{
		"proc/meminfo": "MemTotal:       1024 kB\nMemAvailable:    512 kB\n",
		"sys/kernel/mm/transparent_hugepage/enabled":       "always [madvise] never\n",
		"sys/kernel/mm/transparent_hugepage/shmem_enabled": "always within_size [advise] never deny force\n",
		"sys/class/infiniband/mlx5_0/ports/1/state":        "4: ACTIVE\n",
	} {
		p := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys"), Listen: "256.0.0.1:1", Nixl: nixl.Config{Library: "/nowhere"}}
	got := byName(Run(t.Context(), o))
	for name, want := range map[string]string{
		"memory": "0.0 GiB of 0.0 GiB", "rdma devices": "mlx5_0 (4: ACTIVE)",
	} {
		if f := got[name]; f.Status != OK || !strings.Contains(f.Found, want) {
			t.Errorf("%+v, want %q", f, want)
		}
	}
	if f := got["huge pages"]; f.Status > Warn || !strings.Contains(f.Found, "madvise for anonymous, advise for shared") {
		t.Errorf("%+v", f)
	}
	if f := got["tcp transport"]; f.Status != Fail || Worst(Run(t.Context(), o)) != Fail {
		t.Errorf("%+v", f)
	}
}

// TestHugePagesAreTriedWhereArenasLie tries on a disk, which has some to give or none, and in a folder that isn't there.
func TestHugePagesAreTriedWhereArenasLie(t *testing.T) {
	t.Parallel()
	if f := hugePages(&Options{Sys: "/sys", Shm: t.TempDir()}); !strings.Contains(f.Found, "arenas get") || (f.Status == None) != (f.Advice != "") {
		t.Errorf("on a disk: %+v", f)
	}
	if f := hugePages(&Options{Sys: "/sys", Shm: "/nowhere"}); f.Status != None || !strings.Contains(f.Found, "not tried") {
		t.Errorf("nowhere: %+v", f)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if fs := Run(ctx, Options{}); len(fs) != 0 {
		t.Errorf("%+v", fs)
	}
}
