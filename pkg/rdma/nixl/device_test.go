package nixl

import (
	"bytes"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// Memory of devices goes to the library by address and device, on both sides, and is never touched by this process. The
// stand-in takes any address that is mapped for a device's, and refuses what wasn't registered on that very device.
func TestDeviceMemoryGoesByAddressAndDevice(t *testing.T) {
	t.Parallel()
	l := fakeLibrary(t)
	source := open(t, l, Config{Listen: "127.0.0.1:0", Agents: 1})
	reader := open(t, l, Config{Agents: 1})
	const nbytes = 1 << 16
	src, dst := rdmatest.Alloc(t, nbytes, 1), rdmatest.Alloc(t, nbytes, 2)
	on := func(m *rdma.Memory, device string) *rdma.Memory {
		d, err := rdma.ForeignMemory(m.Addr(), m.Len(), device)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	from, to := on(src, "cuda:1"), on(dst, "cuda:3")
	reg := rdmatest.Register(t, source, from)
	rdmatest.Register(t, reader, to)
	remote := rdmatest.RemoteOf(t, rdmatest.Pair{Source: source, Incarnation: source.Incarnation()}, reg)
	if g := remote.Regions[0]; g.Device != "cuda:1" || g.Base != src.Addr() || g.Nbytes != nbytes {
		t.Fatalf("region %+v", g)
	}
	column := rdma.Segment{Src: 64, Dst: 128, Run: 32, N: [3]int64{1, 1, 100}, SrcStride: [3]int64{0, 0, 256}, DstStride: [3]int64{0, 0, 32}}
	want := bytes.Clone(dst.Bytes())
	rdmatest.Apply(want, [][]byte{src.Bytes()}, []rdma.Segment{column})
	if err := rdmatest.Read(rdmatest.Connect(t, reader, remote), to, []rdma.Segment{column}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(dst.Bytes(), want) {
		t.Error("other bytes came")
	}
	for _, device := range []string{"cuda:2", "", "cuda:x"} {
		wrong := remote
		wrong.Regions = []rdma.RemoteRegion{{Base: src.Addr(), Nbytes: nbytes, Device: device}}
		err := rdmatest.Read(rdmatest.Connect(t, reader, wrong), to, []rdma.Segment{column})
		if rdma.KindOf(err) != rdma.ErrRefused {
			t.Errorf("a region of device %q read as of %q: %v", "cuda:1", device, err)
		}
	}
}
