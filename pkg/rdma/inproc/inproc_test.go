package inproc

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	rdmatest.Conformance(t, func(testing.TB) rdmatest.Pair {
		n := NewNet()
		id := rdma.NewIncarnation()
		return rdmatest.Pair{Source: n.New(id), Reader: n.New(rdma.NewIncarnation()), Incarnation: id}
	})
}
