package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"
)

// build makes the record as of now; the caller holds the lock.
func (c *Cycle) build(now time.Time, outcome Outcome, err error) *Record {
	e2e := max(0, now.Sub(c.started))
	r := &Record{
		Backend: c.o.Backend, Version: c.o.Version, Bytes: c.bytes, ColdWarm: c.coldWarm,
		E2EMs:   ToMillis(e2e),
		Drydock: Extension{Model: c.o.Model, Run: c.o.Run, Outcome: outcome, PauseMs: ToMillis(c.phases.gaps()), Sizes: c.sizes},
	}
	if c.o.Rank >= 0 {
		r.Rank = &c.o.Rank
	}
	r.TPRank, r.TPSize = c.o.TP.pointers()
	r.EPRank, r.EPSize = c.o.EP.pointers()
	explained := c.explained.at(now)
	for i := range c.stages {
		explained += c.stages[i].added
		r.Stages[i] = c.stages[i].record(now)
	}
	r.UnattributedMs = ToMillis(max(0, e2e-explained))
	if r.Drydock.WireBytes == 0 {
		r.Drydock.WireBytes = c.bytes
	}
	if err != nil {
		r.Drydock.Error, r.Drydock.ErrorType = err.Error(), errorType(err)
	}
	for _, f := range c.faults {
		r.Drydock.Faults = append(r.Drydock.Faults, f.Error())
	}
	if sc := c.span.SpanContext(); sc.IsValid() {
		r.Drydock.TraceID, r.Drydock.SpanID = sc.TraceID().String(), sc.SpanID().String()
	}
	return r
}

func (p Parallel) pointers() (rank, size *int) {
	if p.Size == 0 {
		return nil, nil
	}
	return &p.Rank, &p.Size
}

func (st *stageState) record(now time.Time) StageRecord {
	r := StageRecord{Status: StatusNotRecorded, DurationMs: ToMillis(st.wall.at(now) + st.added), Count: st.count, Metadata: maps.Clone(st.metadata)}
	switch len(st.statuses) {
	case 0:
	case 1:
		r.Status = st.statuses[0]
	default:
		r.Status, r.Statuses = StatusMixed, slices.Clone(st.statuses)
	}
	return r
}

// emit writes the record where the options say. It runs once, outside the lock.
func (c *Cycle) emit() {
	c.o.Metrics.observe(c.record)
	line, err := c.record.Line()
	if err != nil {
		c.o.Logger.Error("refit record not emitted", "error", err, "version", c.o.Version)
		return
	}
	for _, f := range c.record.Drydock.Faults {
		c.o.Logger.Error("refit cycle misused", "error", f, "version", c.o.Version)
	}
	if c.o.Lines != nil {
		c.write(c.o.Lines, line)
	} else {
		c.o.Logger.Info(line)
	}
	if v := lookup(c.o.Getenv, EnvStdout); v != "" && v != "0" {
		c.write(c.o.Stdout, line)
	}
}

// write puts the line out in one call, so that lines of concurrent cycles stay whole.
func (c *Cycle) write(w io.Writer, line string) {
	if _, err := io.WriteString(w, line+"\n"); err != nil {
		c.o.Logger.Error("refit record not written", "error", err, "version", c.o.Version)
	}
}

func lookup(getenv func(string) string, name string) string {
	if getenv == nil {
		return os.Getenv(name)
	}
	return getenv(name)
}

// errorType is a low-cardinality name of err's class: what errors with an
// ErrorClass method call themselves, else the name of the type at the root.
func errorType(err error) string {
	var classed interface{ ErrorClass() string }
	switch {
	case errors.As(err, &classed):
		return classed.ErrorClass()
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, ErrAbandoned):
		return "abandoned"
	}
	for u := errors.Unwrap(err); u != nil; u = errors.Unwrap(u) {
		err = u
	}
	return fmt.Sprintf("%T", err)
}
