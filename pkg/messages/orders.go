package messages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

const orderSchema = "drydock.order.v1"

// Order is an operator's order to serve an older version until a newer one is
// committed. Orders are numbered from 1 without gaps, and never change.
type Order struct {
	N      uint64
	To     Key
	Reason string
	By     string
	At     time.Time // milliseconds
	Seq    uint64    // in the stream; not part of the message
}

type wireOrder struct {
	Schema  string `msgpack:"schema"`
	N       uint64 `msgpack:"n"`
	Kind    string `msgpack:"kind"` // "rollback"
	Run     uint64 `msgpack:"run"`
	Version uint64 `msgpack:"version"`
	Reason  string `msgpack:"reason"`
	By      string `msgpack:"by"`
	AtMs    uint64 `msgpack:"at_ms"`
}

const orderRollback = "rollback"

// EncodeOrder writes an order.
func EncodeOrder(o *Order) ([]byte, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	return pack(&wireOrder{
		Schema: orderSchema, N: o.N, Kind: orderRollback, Run: o.To.Run, Version: o.To.Version,
		Reason: o.Reason, By: o.By, AtMs: millis(o.At),
	})
}

// DecodeOrder reads an order.
func DecodeOrder(b []byte) (*Order, error) {
	var w wireOrder
	if err := unpack(orderSchema, b, &w); err != nil {
		return nil, err
	}
	if err := checkSchema(orderSchema, w.Schema); err != nil {
		return nil, err
	}
	if w.Kind != orderRollback {
		return nil, malformed(orderSchema, "kind", "is %.64q", w.Kind)
	}
	o := &Order{N: w.N, To: Key{Run: w.Run, Version: w.Version}, Reason: w.Reason, By: w.By, At: fromMillis(w.AtMs)}
	return o, o.validate()
}

func (o *Order) validate() error {
	if o.N == 0 || o.To.IsZero() {
		return malformed(orderSchema, "n", "orders and runs count from 1")
	}
	if err := checkText(orderSchema, "reason", o.Reason, MaxText); err != nil {
		return err
	}
	return checkText(orderSchema, "by", o.By, MaxText)
}

// rollback is the order as the protocol sees it.
func (o *Order) rollback() protocol.Rollback {
	if o == nil {
		return protocol.Rollback{}
	}
	return protocol.Rollback{To: o.To, Seq: o.Seq}
}

// LastOrder reads the newest order; false when there never was one.
func (c *Control) LastOrder(ctx context.Context) (*Order, bool, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	it, err := c.readOne(ctx, protocol.Intent{Verb: protocol.LastOrder})
	if err != nil || it == nil {
		return nil, false, err
	}
	o, ok := it.Body.Facts.(*Order)
	return o, ok, nil
}

// Rollback orders all receivers to serve version `to` until a newer one is committed.
// The version must stand, and be of the newest run. The order is recorded under the
// next number: of two operators at once, one gets ErrConflict and looks again.
func (c *Control) Rollback(ctx context.Context, to Key, by, reason string) (*Order, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	o, err := c.rollback(ctx, to, by, reason)
	if err != nil {
		return nil, fmt.Errorf("roll back to version %s: %w", to, err)
	}
	// Receivers read orders every few seconds; this only hurries them.
	_ = c.nc.PublishMsg(&nats.Msg{Subject: fmt.Sprintf("refit-notify.%s.o.%d", c.subj.token, o.N)})
	return o, nil
}

func (c *Control) rollback(ctx context.Context, to Key, by, reason string) (*Order, error) {
	list, err := c.Versions(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(v Committed) bool { return v.Key == to })
	if i < 0 || list[i].Manifest == nil {
		return nil, fmt.Errorf("%w, or not any more", ErrNotCommitted)
	}
	last, ok, err := c.LastOrder(ctx)
	if err != nil {
		return nil, err
	}
	o := &Order{N: 1, To: to, By: by, Reason: reason, At: time.Now()}
	if ok {
		o.N = last.N + 1
	}
	body, err := EncodeOrder(o)
	if err != nil {
		return nil, err
	}
	put := &protocol.PutOnce{
		Place: protocol.Place{Kind: protocol.KindOrder, Key: Key{Run: o.N}}, Fence: to.Run,
		Body: protocol.Body{Class: protocol.ClassOrder, Digest: protocol.Sum(body), Bytes: body},
	}
	if err := c.drive(ctx, put); err != nil {
		if errors.Is(err, ErrConflict) {
			return nil, fmt.Errorf("order %d was given by somebody else: %w", o.N, err)
		}
		return nil, err
	}
	o.Seq = put.Stored.Seq
	return o, nil
}
