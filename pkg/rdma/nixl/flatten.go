package nixl

import (
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/nixlsys"
)

// flattener turns strided segments into chunks of flat runs: the library knows no strides.
type flattener struct {
	base, device uint64 // of the destination

	from       uint64 // base of the source's region
	fromDevice uint64
	kind       nixlsys.MemType
	cur        chunk
	out        []chunk
}

// region sets where the next segments come from.
func (f *flattener) region(base uint64, t nixlsys.MemType, dev uint64) {
	if t != f.kind {
		f.flush()
	}
	f.from, f.kind, f.fromDevice = base, t, dev
}

func (f *flattener) segment(s *rdma.Segment) {
	for i := range s.N[0] {
		for j := range s.N[1] {
			for k := range s.N[2] {
				f.run(s.Src+i*s.SrcStride[0]+j*s.SrcStride[1]+k*s.SrcStride[2],
					s.Dst+i*s.DstStride[0]+j*s.DstStride[1]+k*s.DstStride[2], s.Run)
			}
		}
	}
}

func (f *flattener) run(src, dst, nbytes int64) {
	if f.cur.nbytes+nbytes > chunkBytes || len(f.cur.local) == chunkDescs {
		f.flush()
	}
	f.cur.local = append(f.cur.local, nixlsys.Desc{Addr: f.base + uint64(dst), Nbytes: uint64(nbytes), Device: f.device})
	f.cur.remote = append(f.cur.remote, nixlsys.Desc{Addr: f.from + uint64(src), Nbytes: uint64(nbytes), Device: f.fromDevice})
	f.cur.nbytes += nbytes
	f.cur.memType = f.kind
}

func (f *flattener) flush() {
	if f.cur.nbytes > 0 {
		f.out = append(f.out, f.cur)
	}
	f.cur = chunk{}
}
