package refit

import (
	"context"
	"errors"
	"log/slog"
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

// noteStranded says that what receivers should serve is not newer than what this one serves, as after the message server
// has lost its data: it would be ignored without a word otherwise.
func (r *Receiver) noteStranded(s messages.Stranded) {
	r.noteFailure(&Failure{Class: Backwards, Op: "follow", Model: r.cfg.Model, Key: s.Newest, Err: errors.New(s.String())})
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

// KeepStatus renews a status that does not change before it expires, until ctx ends: of a process that waits for something
// before it has a receiver, such as for an engine that tells what it needs.
func KeepStatus(ctx context.Context, c *messages.Control, s messages.Status, log *slog.Logger) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		s.Updated = time.Now()
		putStatus(ctx, c, s, log)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// publishStatus keeps the receiver's status in the bucket until ctx ends, and leaves the last one there. It runs beside
// staging and applying, however long these take.
func (r *Receiver) publishStatus(ctx context.Context) {
	tick := time.NewTicker(r.cfg.statusEvery)
	defer tick.Stop()
	for {
		putStatus(ctx, r.cfg.Control, r.Status(), r.cfg.Logger)
		select {
		case <-r.noted:
		case <-tick.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			putStatus(last, r.cfg.Control, r.Status(), r.cfg.Logger)
			return
		}
	}
}

func putStatus(ctx context.Context, c *messages.Control, s messages.Status, log *slog.Logger) {
	if err := c.PutStatus(ctx, s.Name, s); err != nil && !errors.Is(err, context.Canceled) {
		log.Warn("status not published", "error", err)
	}
}
