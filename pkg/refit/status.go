package refit

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
)

// keyList writes versions as one text.
func keyList(keys []messages.Key) string {
	words := make([]string, 0, maxSkipped)
	for i, k := range keys {
		if i == maxSkipped {
			words = append(words, "…")
			break
		}
		words = append(words, k.String())
	}
	return strings.Join(words, " ")
}

// maxSkipped is how many skipped versions a status names.
const maxSkipped = 32

func (r *Receiver) firstStatus() messages.Status {
	return messages.Status{
		Role: messages.RoleReceiver, Name: r.cfg.Name, Host: rdma.HostName(r.cfg.Host), Ranks: r.ranks(),
		Serving: r.serving, Arenas: r.arenas.Names(),
	}
}

// Status is what the receiver says of itself.
func (r *Receiver) Status() messages.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Updated = time.Now()
	return s
}

// note changes the status and has Follow publish it.
func (r *Receiver) note(change func(*messages.Status)) {
	r.mu.Lock()
	change(&r.status)
	r.mu.Unlock()
	r.countArenas()
	select {
	case r.noted <- struct{}{}:
	default:
	}
}

// countArenas tells the metrics what the arenas are in use for.
func (r *Receiver) countArenas() {
	if r.cfg.Metrics == nil {
		return
	}
	for state, u := range r.arenas.Usage() {
		r.cfg.Metrics.Arenas(r.cfg.Model, state, u.Slots, u.Nbytes)
	}
}

func (r *Receiver) noteFailure(f *Failure) {
	text := f.Error()
	r.cfg.Logger.Error(text, "class", string(f.Class))
	r.cfg.Metrics.Failure(r.cfg.Model, string(f.Class))
	r.note(func(s *messages.Status) {
		s.Staging, s.StageState = messages.Key{}, ""
		s.Failure = &messages.Failure{Class: string(f.Class), Text: text, Key: f.Key, At: time.Now()}
	})
}

func (r *Receiver) noteSkipped(keys []messages.Key) {
	if len(keys) == 0 {
		return
	}
	r.cfg.Logger.Info("versions skipped: superseded before they were staged", "keys", keys)
	r.note(func(s *messages.Status) {
		s.Skipped = append(s.Skipped, keys...)
		if extra := len(s.Skipped) - maxSkipped; extra > 0 {
			s.Skipped = s.Skipped[extra:]
		}
	})
}

// statusInterval is how often a status is renewed without a change; it must stay well below the bucket's TTL.
const statusInterval = 15 * time.Second

// publishStatus keeps the receiver's status in the bucket until ctx ends, and leaves the last one there.
func (r *Receiver) publishStatus(ctx context.Context) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		r.putStatus(ctx)
		select {
		case <-r.noted:
		case <-tick.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			r.putStatus(last)
			return
		}
	}
}

func (r *Receiver) putStatus(ctx context.Context) {
	err := r.cfg.Control.PutStatus(ctx, r.cfg.Name, r.Status())
	if err != nil && !errors.Is(err, context.Canceled) {
		r.cfg.Logger.Warn("status not published", "error", err)
	}
}
