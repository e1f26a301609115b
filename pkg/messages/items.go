package messages

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// item makes of a stored message what the machines understand. A message that can't be
// read is quarantined, and goes on as ClassBad: it occupies its place like any other.
func (c *Control) item(m *stored) (protocol.Item, bool) {
	if it, ok := m.Decoded.(protocol.Item); ok {
		return it, true
	}
	place, ok := c.placeOf(m.Subject)
	if !ok {
		c.quarantine(m, fmt.Errorf("no message belongs on this subject"))
		return protocol.Item{}, false
	}
	it := protocol.Item{Place: place, Seq: m.Seq, Trace: traceHeaders(m.Header)}
	body, err := decodeBody(place, m, c.cfg.Model)
	if err != nil {
		c.quarantine(m, err)
		body = protocol.Body{Class: protocol.ClassBad, Facts: err}
	}
	body.Digest, body.Bytes = m.Digest, m.Data
	it.Body = body
	return it, true
}

// decodeWorkers is how many messages or ranks are decoded at once.
const decodeWorkers = 4

// items reads messages, several at once when they are many; those that do not belong
// where they lie are left out.
func (c *Control) items(msgs []*stored) []protocol.Item {
	read := make([]protocol.Item, len(msgs))
	eachOf(len(msgs), func(i int) {
		if it, ok := c.item(msgs[i]); ok {
			read[i] = it
		}
	})
	return slices.DeleteFunc(read, func(it protocol.Item) bool { return it.Seq == 0 })
}

// eachOf calls f for each index in [0, n), by up to decodeWorkers goroutines.
func eachOf(n int, f func(i int)) {
	const few = 8 // of which one goroutine is done before another has begun
	if n <= few {
		for i := range n {
			f(i)
		}
		return
	}
	var wg sync.WaitGroup
	var last atomic.Int64
	for range decodeWorkers {
		wg.Go(func() {
			for i := int(last.Add(1)) - 1; i < n; i = int(last.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// placeOf is the inverse of subjectOf.
func (c *Control) placeOf(subject string) (protocol.Place, bool) {
	if rest, ok := strings.CutPrefix(subject, "$KV."+c.subj.leaseBucket()+"."); ok {
		t := strings.Split(rest, ".")
		if len(t) != 3 {
			return protocol.Place{}, false
		}
		key, err := ParseKey(t[0] + "." + t[1])
		return protocol.Place{Kind: protocol.KindLease, Key: key, Name: t[2]}, err == nil
	}
	rest, ok := strings.CutPrefix(subject, c.subj.root())
	if !ok {
		return protocol.Place{}, false
	}
	t := strings.Split(rest, ".")
	switch {
	case t[0] == "c" && len(t) == 3:
		key, err := ParseKey(t[1] + "." + t[2])
		return protocol.Place{Kind: protocol.KindCommit, Key: key}, err == nil
	case t[0] == "v" && len(t) == 5 && t[3] == "t":
		key, err := ParseKey(t[1] + "." + t[2])
		rank, err2 := strconv.Atoi(t[4])
		return protocol.Place{Kind: protocol.KindTable, Key: key, Rank: rank}, err == nil && err2 == nil
	case (t[0] == "r" || t[0] == "o") && len(t) == 2:
		kind := protocol.KindRun
		if t[0] == "o" {
			kind = protocol.KindOrder
		}
		n, err := strconv.ParseUint(t[1], 10, 64)
		return protocol.Place{Kind: kind, Key: Key{Run: n}}, err == nil
	}
	return protocol.Place{}, false
}

// decodeBody reads a message and checks that it belongs where it was found.
func decodeBody(place protocol.Place, m *stored, model string) (protocol.Body, error) {
	switch place.Kind {
	case protocol.KindTable:
		t, err := DecodeTable(m.Data)
		if err != nil {
			return protocol.Body{}, err
		}
		if t.Key != place.Key || t.Rank != place.Rank || t.Model != model {
			return protocol.Body{}, malformed(tableSchema, "key", "table of %q %s rank %d lies at %s", t.Model, t.Key, t.Rank, m.Subject)
		}
		return protocol.Body{Class: protocol.ClassTable, World: t.World, Facts: t}, nil
	case protocol.KindCommit:
		return decodeCommit(place, m, model)
	case protocol.KindLease:
		return decodeLeaseBody(place, m)
	case protocol.KindOrder:
		o, err := DecodeOrder(m.Data)
		if err == nil && o.N != place.Key.Run {
			err = malformed(orderSchema, "n", "order %d lies at %s", o.N, m.Subject)
		}
		if err != nil {
			return protocol.Body{}, err
		}
		o.Seq = m.Seq
		return protocol.Body{Class: protocol.ClassOrder, Facts: o}, nil
	default:
		r, err := DecodeRun(m.Data)
		if err != nil {
			return protocol.Body{}, err
		}
		if r.Run != place.Key.Run {
			return protocol.Body{}, malformed(runSchema, "run", "record of run %d lies at %s", r.Run, m.Subject)
		}
		return protocol.Body{Class: protocol.ClassRun, Owner: r.Job, World: r.World, Facts: r}, nil
	}
}

func decodeCommit(place protocol.Place, m *stored, model string) (protocol.Body, error) {
	schema, err := schemaOf(m.Data)
	if err != nil {
		return protocol.Body{}, err
	}
	if schema == endedSchema {
		e, err := DecodeEnded(m.Data)
		if err != nil {
			return protocol.Body{}, err
		}
		class := protocol.ClassRetired
		if e.State == EndAbandoned {
			class = protocol.ClassAbandoned
		}
		if e.Key != place.Key {
			err = malformed(endedSchema, "run", "end of %s lies at %s", e.Key, m.Subject)
		}
		return protocol.Body{Class: class, Facts: e}, err
	}
	man, err := DecodeManifest(m.Data)
	if err != nil {
		return protocol.Body{}, err
	}
	if man.Key != place.Key || man.Model != model {
		return protocol.Body{}, malformed(manifestSchema, "key", "manifest of %q %s lies at %s", man.Model, man.Key, m.Subject)
	}
	return protocol.Body{Class: protocol.ClassManifest, World: man.World, Facts: man}, nil
}

// decodeLeaseBody knows the marks that the server and clients leave in a bucket when a
// key has expired or was deleted: they look like messages, and are nobody's lease.
func decodeLeaseBody(place protocol.Place, m *stored) (protocol.Body, error) {
	if m.Header.Get(hdrMarker) != "" || m.Header.Get(hdrKVOperation) != "" || len(m.Data) == 0 {
		return protocol.Body{Class: protocol.ClassReleased}, nil
	}
	l, err := DecodeLease(m.Data)
	if err != nil {
		return protocol.Body{}, err
	}
	if l.Key != place.Key || l.Receiver != place.Name {
		return protocol.Body{}, malformed(leaseSchema, "key", "lease of %s on %s lies at %s", l.Receiver, l.Key, m.Subject)
	}
	return protocol.Body{Class: protocol.ClassLease, Holder: l.Holder, Owner: l.Receiver, Facts: l}, nil
}
