package messages

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// PutStatus replaces the status of one process. It expires after StatusTTL unless it
// is put again: a process that is gone is not listed.
func (c *Control) PutStatus(ctx context.Context, name string, s Status) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	s.Name = name
	if s.Updated.IsZero() {
		s.Updated = time.Now()
	}
	body, err := EncodeStatus(&s)
	if err != nil {
		return fmt.Errorf("put the status of %q: %w", name, err)
	}
	m := &nats.Msg{Subject: c.subj.status(name), Data: body, Header: nats.Header{}}
	m.Header.Set(hdrTTL, seconds(c.cfg.StatusTTL))
	if _, err := c.store(ctx, m); err != nil {
		return fmt.Errorf("put the status of %q: %w", name, err)
	}
	return nil
}

// Statuses reads all statuses, by name.
func (c *Control) Statuses(ctx context.Context) ([]Status, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	msgs, err := c.list(ctx, "KV_"+c.subj.statusBucket(), c.subj.status("*"))
	if err != nil {
		return nil, fmt.Errorf("read statuses of %q: %w", c.cfg.Model, err)
	}
	var list []Status
	for _, m := range msgs {
		if m.Header.Get(hdrMarker) != "" || m.Header.Get(hdrKVOperation) != "" {
			continue
		}
		s, err := DecodeStatus(m.Data)
		if err != nil {
			c.quarantine(m, err)
			continue
		}
		s.Name = strings.TrimPrefix(m.Subject, c.subj.status(""))
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
