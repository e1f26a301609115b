package tracing

import (
	"context"
	"time"
)

// StageIdle opens a span of s whose time counts only while [Span.Work] is open: for a stage that is done in many small
// pieces between those of other stages. In the trace it is one span from its first to its last moment, which says as
// busy_ms how much of that was work.
func (c *Cycle) StageIdle(ctx context.Context, s Stage) (context.Context, *Span) {
	ctx, sp := c.Stage(ctx, s)
	if sp == nil {
		return ctx, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	sp.idle = true
	sp.count(c.o.Now(), (*union).end)
	return ctx, sp
}

// Work says that work of an idle stage goes on until done is called. Pieces of work may overlap; their union counts.
// On a span that [Cycle.Stage] opened it changes nothing.
func (sp *Span) Work() (done func()) {
	if sp == nil || !sp.idle {
		return noWork
	}
	sp.c.mu.Lock()
	defer sp.c.mu.Unlock()
	if sp.ended {
		return noWork
	}
	sp.count(sp.c.o.Now(), (*union).begin)
	return sp.workDone
}

func noWork() {}

func (sp *Span) workDone() {
	sp.c.mu.Lock()
	defer sp.c.mu.Unlock()
	sp.count(sp.c.o.Now(), (*union).end)
}

// count books a moment on the span's own clock, the stage's and the cycle's; the caller holds the lock.
func (sp *Span) count(now time.Time, book func(*union, time.Time)) {
	book(&sp.busy, now)
	book(&sp.c.stages[sp.stage-1].wall, now)
	book(&sp.c.explained, now)
}
