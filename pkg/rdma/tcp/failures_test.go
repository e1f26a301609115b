package tcp

import (
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

func serveChild(s rdmatest.SourceSpec) (rdma.Transport, string, error) {
	cfg := Config{Listen: "127.0.0.1:0", Secure: s.Kind == "tls"}
	if s.Listen != "" {
		cfg.Listen = s.Listen
	}
	tr, err := New(cfg)
	if err != nil {
		return nil, "", err
	}
	return tr, tr.Incarnation(), nil
}

// It measures the whole process, so it runs alone.
func TestSourcesThatFail(t *testing.T) {
	for _, kind := range []string{"plain", "tls"} {
		t.Run(kind, func(t *testing.T) {
			rdmatest.FailureSuite{
				Spec:       rdmatest.SourceSpec{Kind: kind},
				Damageable: 2 + 32, // version, flags and capability; addresses follow
				Reader:     func(t testing.TB) rdma.Transport { return open(t, Config{Stall: time.Second, Handshake: time.Second}) },
			}.Run(t)
		})
	}
}
