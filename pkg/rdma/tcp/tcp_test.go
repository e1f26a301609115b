package tcp

import (
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

func TestMain(m *testing.M) {
	rdmatest.Child(map[string]rdmatest.Serve{"plain": serveChild, "tls": serveChild})
	goleak.VerifyTestMain(m)
}

// newPair makes transports over loopback; edit changes both configurations.
func newPair(t testing.TB, edit func(*Config)) rdmatest.Pair {
	t.Helper()
	source := Config{Listen: "127.0.0.1:0", Stall: 5 * time.Second}
	reader := Config{Stall: 5 * time.Second, Handshake: 2 * time.Second}
	if edit != nil {
		edit(&source)
		edit(&reader)
	}
	s := open(t, source)
	return rdmatest.Pair{Source: s, Reader: open(t, reader), Incarnation: s.Incarnation()}
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

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*Config){
		"plain":          nil,
		"tls":            func(c *Config) { c.Secure = c.Listen != "" },
		"one connection": func(c *Config) { c.Conns = 1 },
		"sixteen":        func(c *Config) { c.Conns = 16 },
	} {
		t.Run(name, func(t *testing.T) {
			rdmatest.Conformance(t, func(t testing.TB) rdmatest.Pair { return newPair(t, edit) })
		})
	}
}

// Off loopback long runs leave by sendfile.
func TestConformanceBySendfile(t *testing.T) {
	t.Parallel()
	addr := ownAddress(t)
	rdmatest.Conformance(t, func(t testing.TB) rdmatest.Pair {
		return newPair(t, func(c *Config) {
			if c.Listen != "" {
				c.Listen = addr
			}
		})
	})
}

// ownAddress is an address of this host that isn't loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return net.JoinHostPort(n.IP.String(), "0")
		}
	}
	t.Skip("this host has no address but loopback")
	return ""
}

func BenchmarkRead(b *testing.B) {
	rdmatest.Benchmark(b, func(t testing.TB) rdmatest.Pair { return newPair(t, nil) })
}
