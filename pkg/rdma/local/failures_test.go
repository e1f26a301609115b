package local

import (
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

func serveChild(rdmatest.SourceSpec) (rdma.Transport, string, error) {
	tr, err := New(Config{})
	if err != nil {
		return nil, "", err
	}
	return tr, tr.Incarnation(), nil
}

// It measures the whole process, so it runs alone.
func TestSourcesThatFail(t *testing.T) {
	for _, b := range []rdma.Backing{rdma.Memfd, rdma.Anonymous} {
		t.Run(b.String(), func(t *testing.T) {
			rdmatest.FailureSuite{
				Spec:        rdmatest.SourceSpec{Kind: "local", Backing: b},
				Reader:      func(t testing.TB) rdma.Transport { return open(t, Config{}) },
				KernelReads: true,
			}.Run(t)
		})
	}
}
