package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// WatchOptions say how Watch watches.
type WatchOptions struct {
	Interval time.Duration // between looks that nothing else calls for; 500 ms
	JSON     bool          // one JSON object a line
}

// Watch writes what happens to a model, event by event, until ctx ends, which is no error. The first events are the
// present state. It looks when a version is announced, and every Interval, since statuses announce nothing. While the
// servers don't answer it says so, once, and goes on.
func Watch(ctx context.Context, c *messages.Control, out io.Writer, o WatchOptions) error {
	if o.Interval <= 0 {
		o.Interval = 500 * time.Millisecond
	}
	announced, err := c.Watch(ctx)
	if err != nil {
		return err
	}
	w := &watcher{c: c, out: out, json: o.JSON, last: &View{}}
	tick := time.NewTicker(o.Interval)
	defer tick.Stop()
	for {
		if err := w.look(ctx); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case _, open := <-announced:
			if !open {
				announced = nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// watcher is one watch under way.
type watcher struct {
	c      *messages.Control
	out    io.Writer
	json   bool
	last   *View
	silent bool // the servers did not answer the last time
}

// look writes what has changed. Its error ends the watch.
func (w *watcher) look(ctx context.Context) error {
	v, err := Look(ctx, w.c, time.Now())
	if err != nil {
		return w.failed(ctx, err)
	}
	var events []Event
	if w.silent {
		w.silent = false
		events = append(events, Event{At: v.Now, Kind: "servers", Subject: v.Model, Text: "answer again"})
	}
	events = append(events, Changes(w.last, v)...)
	w.last = v
	return w.write(events)
}

// failed tells of a look that failed, the first of several.
func (w *watcher) failed(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
	}
	switch {
	case errors.Is(err, messages.ErrNoStream), errors.Is(err, messages.ErrPermission):
		return err
	case w.silent:
		return nil
	}
	w.silent = true
	return w.write([]Event{{At: time.Now(), Kind: "servers", Subject: w.c.Model(), Text: printable(err.Error())}})
}

func (w *watcher) write(events []Event) error {
	for i := range events {
		line := []byte(events[i].line())
		if w.json {
			var err error
			if line, err = json.Marshal(&events[i]); err != nil {
				return err
			}
		}
		if _, err := w.out.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("write what happens: %w", err)
		}
	}
	return nil
}
