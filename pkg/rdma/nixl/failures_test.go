package nixl

import (
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// serveChild serves over the plug-in with the parameters given.
func serveChild(params map[string]string) rdmatest.Serve {
	return func(rdmatest.SourceSpec) (rdma.Transport, string, error) {
		tr, err := New(Config{Library: findLibrary(), Params: params, Listen: "127.0.0.1:0", Agents: 1})
		if err != nil {
			return nil, "", err
		}
		return tr, tr.Incarnation(), nil
	}
}

var (
	overSHM = map[string]string{}
	overTCP = map[string]string{"engine_config": "TLS=tcp"}
)

func TestSourcesThatFail(t *testing.T) {
	for kind, params := range map[string]map[string]string{"shm": overSHM, "tcp": overTCP} {
		t.Run(kind, func(t *testing.T) {
			l := library(t)
			rdmatest.FailureSuite{
				Spec: rdmatest.SourceSpec{Kind: kind, Listen: "-"},
				Reader: func(t testing.TB) rdma.Transport {
					return open(t, l, Config{Params: params, Agents: 1, Stall: time.Second})
				},
			}.Run(t)
		})
	}
}
