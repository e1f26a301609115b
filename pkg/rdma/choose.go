package rdma

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Offer is everything an endpoint says of itself: one Remote by any of several ways of access.
type Offer struct {
	Remote            // its Access is ignored
	Accesses []Access // in the endpoint's order; the reader's preference decides
}

// Choice says which transport was taken for an endpoint, and why those preferred to it were not.
type Choice struct {
	Rank      int
	Transport string // "" when none could be taken
	Skipped   []Skip // in the order of preference
}

// Skip is one transport that wasn't taken.
type Skip struct {
	Transport string
	Reason    error
}

// String is the line that a log or an error shows.
func (c Choice) String() string {
	var b strings.Builder
	if c.Transport != "" {
		fmt.Fprintf(&b, "rank %d over %s", c.Rank, c.Transport)
	} else {
		fmt.Fprintf(&b, "rank %d: no transport", c.Rank)
	}
	for _, s := range c.Skipped {
		fmt.Fprintf(&b, "; not %s: %v", s.Transport, s.Reason)
	}
	return b.String()
}

var errNotOffered = errors.New("not offered by the endpoint")

// Connect tries the reader's transports in the order given and takes the first that reaches the endpoint. A transport
// that the endpoint doesn't offer, and one that fails, is skipped with its reason, which Choice reports: falling back
// is never silent. An endpoint of another incarnation (ErrStale) and an ended context stop the search.
func Connect(ctx context.Context, prefer []Transport, o Offer) (Peer, Choice, error) {
	choice := Choice{Rank: o.Rank}
	for _, t := range prefer {
		peer, err := connectOne(ctx, t, o)
		if err == nil {
			choice.Transport = t.Name()
			return peer, choice, nil
		}
		choice.Skipped = append(choice.Skipped, Skip{Transport: t.Name(), Reason: err})
		if errors.Is(err, ErrStale) || ctx.Err() != nil {
			break
		}
	}
	return nil, choice, choice.failure()
}

func connectOne(ctx context.Context, t Transport, o Offer) (Peer, error) {
	for _, a := range o.Accesses {
		if a.Transport == t.Name() {
			r := o.Remote
			r.Access = a
			return t.Connect(ctx, r)
		}
	}
	return nil, &Error{Kind: ErrUnavailable, Op: "connect", Transport: t.Name(), Rank: o.Rank, Err: errNotOffered}
}

// failure sums up why nothing was taken; its kind is that of the last transport tried.
func (c Choice) failure() error {
	if len(c.Skipped) == 0 {
		return &Error{Kind: ErrUnavailable, Op: "connect", Transport: "auto", Rank: c.Rank, Err: errors.New("no transport configured")}
	}
	last := c.Skipped[len(c.Skipped)-1].Reason
	if len(c.Skipped) == 1 {
		return last
	}
	kind := KindOf(last)
	if kind == 0 {
		kind = ErrUnreachable
	}
	return &Error{Kind: kind, Op: "connect", Transport: "auto", Rank: c.Rank, Err: errors.New(c.String())}
}

// RegisterAll registers m with every transport. Region numbers must agree between them, which they do when all
// memory is registered through here; the common number is returned. On error nothing stays registered.
func RegisterAll(ts []Transport, m *Memory) (Regions, error) {
	var rs Regions
	for _, t := range ts {
		r, err := t.Register(m)
		if err != nil {
			return nil, errors.Join(err, rs.Close())
		}
		rs = append(rs, r)
		if r.ID() != rs[0].ID() {
			err := fmt.Errorf("register with %s: region %d, where %s has %d", t.Name(), r.ID(), ts[0].Name(), rs[0].ID())
			return nil, errors.Join(err, rs.Close())
		}
	}
	return rs, nil
}

// Regions is one memory registered with several transports.
type Regions []Region

// ID is the number that readers name, the same for all.
func (rs Regions) ID() uint32 { return rs[0].ID() }

// Close withdraws all.
func (rs Regions) Close() error {
	var errs []error
	for _, r := range rs {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// AccessAll collects the access of every transport.
func AccessAll(ts []Transport) ([]Access, error) {
	out := make([]Access, 0, len(ts))
	for _, t := range ts {
		a, err := t.Access()
		if err != nil {
			return nil, fmt.Errorf("describe access by %s: %w", t.Name(), err)
		}
		out = append(out, a)
	}
	return out, nil
}
