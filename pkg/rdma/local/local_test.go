package local

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

func TestMain(m *testing.M) {
	rdmatest.Child(map[string]rdmatest.Serve{"local": serveChild})
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, cfg Config) *Transport {
	t.Helper()
	tr, err := New(cfg)
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

func newPair(t testing.TB, b rdma.Backing) rdmatest.Pair {
	t.Helper()
	s := open(t, Config{})
	return rdmatest.Pair{Source: s, Reader: open(t, Config{}), Incarnation: s.Incarnation(), Backing: b}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, b := range []rdma.Backing{rdma.Memfd, rdma.File, rdma.Anonymous} {
		t.Run(b.String(), func(t *testing.T) {
			rdmatest.Conformance(t, func(t testing.TB) rdmatest.Pair { return newPair(t, b) })
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, back := range []rdma.Backing{rdma.Memfd, rdma.Anonymous} {
		b.Run(back.String(), func(b *testing.B) {
			rdmatest.Benchmark(b, func(t testing.TB) rdmatest.Pair { return newPair(t, back) })
		})
	}
}
