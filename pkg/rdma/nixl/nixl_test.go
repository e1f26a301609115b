package nixl

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == ProbeArg {
		os.Exit(ProbeMain(os.Stdin, os.Stdout))
	}
	rdmatest.Child(map[string]rdmatest.Serve{"shm": serveChild(overSHM), "tcp": serveChild(overTCP)})
	goleak.VerifyTestMain(m)
}

// findLibrary is the library that the environment names, or the pinned one if it has been fetched, or "".
func findLibrary() string {
	if p := os.Getenv("DRYDOCK_NIXL_LIB"); p != "" {
		return p
	}
	found, err := filepath.Glob("../../../.cache/nixl/*/.nixl_cu12.mesonpy.libs/" + libraryName)
	if err != nil || len(found) == 0 {
		return ""
	}
	p, err := filepath.Abs(found[0])
	if err != nil {
		return ""
	}
	return p
}

func library(t testing.TB) *Library {
	t.Helper()
	path := findLibrary()
	if path == "" {
		if os.Getenv("DRYDOCK_REQUIRE_NIXL") == "1" {
			t.Fatal("DRYDOCK_REQUIRE_NIXL=1 and no NIXL library: run make nixl, or set DRYDOCK_NIXL_LIB")
		}
		t.Skip("no NIXL library: run make nixl, or set DRYDOCK_NIXL_LIB")
	}
	l, err := Open(Config{Library: path})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func open(t testing.TB, l *Library, cfg Config) *Transport {
	t.Helper()
	tr, err := l.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return tr
}

func newPair(t testing.TB, l *Library, cfg Config) rdmatest.Pair {
	t.Helper()
	cfg.Stall, cfg.Agents = 10*time.Second, 1
	reader := cfg
	cfg.Listen = "127.0.0.1:0"
	s := open(t, l, cfg)
	return rdmatest.Pair{Source: s, Reader: open(t, l, reader), Incarnation: s.Incarnation(), Backing: rdma.Memfd}
}

func TestConformance(t *testing.T) {
	for name, params := range map[string]map[string]string{"shared memory": overSHM, "tcp": overTCP} {
		t.Run(name, func(t *testing.T) {
			l := library(t)
			rdmatest.Conformance(t, func(t testing.TB) rdmatest.Pair { return newPair(t, l, Config{Params: params}) })
		})
	}
}

func BenchmarkRead(b *testing.B) {
	l := library(b)
	rdmatest.Benchmark(b, func(t testing.TB) rdmatest.Pair { return newPair(t, l, Config{}) })
}
