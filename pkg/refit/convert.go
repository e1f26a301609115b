package refit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
)

// PlanLayout is the planner's view of a published layout. The columns are shared, not copied; the numeric dtype codes
// of both packages are the same.
func PlanLayout(l *messages.Layout) *plan.Layout {
	dtypes := make([]plan.DType, len(l.DTypes))
	for i, d := range l.DTypes {
		dtypes[i] = plan.DType(d)
	}
	return &plan.Layout{
		Rank: l.Rank, Regions: l.Regions,
		Names: l.Names, DTypes: dtypes, ShapeEnd: l.ShapeEnd, Shapes: l.Shapes,
		Source: l.Source, Region: l.Region, Offset: l.Offset, Box: l.Box, Stride: l.Stride,
	}
}

// merge joins the layouts of a version's ranks into the planner's table.
func merge(v *messages.Version) (*plan.Table, error) {
	layouts := make([]*plan.Layout, len(v.Ranks))
	for i := range v.Ranks {
		layouts[i] = PlanLayout(v.Ranks[i].Layout)
	}
	return plan.Merge(layouts)
}

// offer is the transports' view of a rank's endpoint.
func offer(rank int, e *messages.Endpoint) rdma.Offer {
	o := rdma.Offer{Remote: rdma.Remote{Rank: rank, Host: e.Host, Incarnation: e.Incarnation}}
	for _, r := range e.Regions {
		o.Regions = append(o.Regions, rdma.RemoteRegion{Base: r.Base, Nbytes: r.Nbytes, Device: r.Device})
	}
	for _, a := range e.Access {
		o.Accesses = append(o.Accesses, rdma.Access{Transport: a.Transport, Agent: a.Agent, Metadata: a.Metadata})
	}
	return o
}

// endpoint is what a rank publishes of its transports and its regions.
func endpoint(rank int, host, incarnation string, transports []rdma.Transport, regions []rdma.RemoteRegion) (*messages.Endpoint, error) {
	accesses, err := rdma.AccessAll(transports)
	if err != nil {
		return nil, err
	}
	e := &messages.Endpoint{Rank: rank, Host: host, Incarnation: incarnation}
	for _, r := range regions {
		e.Regions = append(e.Regions, messages.EndpointRegion{Base: r.Base, Nbytes: r.Nbytes, Device: r.Device})
	}
	for _, a := range accesses {
		e.Access = append(e.Access, messages.Access{Transport: a.Transport, Agent: a.Agent, Metadata: a.Metadata})
	}
	return e, nil
}

// segment is the transports' form of a planned segment, with the layout's region replaced by the endpoint's.
func segment(s *plan.Segment, regions []uint32) rdma.Segment {
	region := s.Region
	if regions != nil {
		region = regions[region]
	}
	return rdma.Segment{
		Region: region, Src: s.Src, Dst: s.Dst, Run: s.Run,
		N: s.N, SrcStride: s.SrcStride, DstStride: s.DstStride,
	}
}

// arenaRank is the arena's view of a destination: every parameter that has storage of its own and that copies can make.
func arenaRank(d *plan.Dest) arena.Rank {
	r := arena.Rank{Rank: d.Rank, Alias: d.Alias, Recipe: recipeOf(d)}
	for i := range d.Params {
		if p := &d.Params[i]; p.Excluded == "" {
			r.Tensors = append(r.Tensors, safetensors.Spec{Name: p.Name, DType: safetensors.DType(p.DType.String()), Shape: p.Shape})
		}
	}
	return r
}

// recipeOf names how a destination's parameters are made of sources: the same version, made otherwise, has other bytes.
func recipeOf(d *plan.Dest) string {
	h := sha256.New()
	fmt.Fprintln(h, d.Reorders)
	for i := range d.Params { // copies and fills name them by number
		fmt.Fprintf(h, "%q %q\n", d.Params[i].Name, d.Params[i].Excluded)
	}
	for i := range d.Copies {
		c := &d.Copies[i]
		fmt.Fprintf(h, "copy %q %#v to %d %d %v %v %d\n", c.Source, c.Ops, c.Param, c.Offset, c.Shape, c.Stride, c.DType)
	}
	for i := range d.Fills {
		f := &d.Fills[i]
		fmt.Fprintf(h, "fill %d %d %v %v %x\n", f.Param, f.Offset, f.Shape, f.Stride, math.Float64bits(f.Value))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// placeParams gives the parameters of a destination their places in the arena.
func placeParams(d *plan.Dest, offsets []int64) error {
	next := 0
	for i := range d.Params {
		if d.Params[i].Excluded != "" {
			continue
		}
		if next == len(offsets) {
			return fmt.Errorf("place parameter %s of rank %d: the arena has only %d tensors", d.Params[i].Name, d.Rank, next)
		}
		d.Params[i].Offset = offsets[next]
		next++
	}
	return nil
}
