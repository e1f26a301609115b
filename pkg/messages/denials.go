package messages

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// denials fails pending operations when the server refuses their subject. It says so
// only by an asynchronous error: without this every refusal would look like a time-out.
type denials struct {
	mu      sync.Mutex
	pending map[*pendingOp]struct{}
}

type pendingOp struct {
	subject string
	cancel  context.CancelCauseFunc
}

// on says whether an operation is on a subject. One whose subject ends in ">" is on all below it.
func (op *pendingOp) on(subject string) bool {
	below, wild := strings.CutSuffix(op.subject, ">")
	return wild && strings.HasPrefix(subject, below) || op.subject == subject
}

// listen takes over nc's asynchronous errors, and passes them on to the handler that was
// there before; restore puts that back.
func (d *denials) listen(nc *nats.Conn) (restore func()) {
	before := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		d.report(err)
		if before != nil {
			before(nc, sub, err)
		}
	})
	return func() { nc.SetErrorHandler(before) }
}

// watch returns a context for one attempt on subject that also ends when the server
// refuses it.
func (d *denials) watch(ctx context.Context, subject string, timeout time.Duration) (context.Context, func()) {
	ctx, stop := context.WithTimeout(ctx, timeout)
	ctx, cancel := context.WithCancelCause(ctx)
	op := &pendingOp{subject: subject, cancel: cancel}
	d.mu.Lock()
	if d.pending == nil {
		d.pending = make(map[*pendingOp]struct{})
	}
	d.pending[op] = struct{}{}
	d.mu.Unlock()
	return ctx, func() {
		d.mu.Lock()
		delete(d.pending, op)
		d.mu.Unlock()
		cancel(nil)
		stop()
	}
}

// report takes an asynchronous error of the connection. A refused publish concerns
// the operations on its subject; a refused subscription concerns the answers of all.
func (d *denials) report(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	what, subject := parseViolation(err.Error())
	cause := fmt.Errorf("%w: this user may not %s %s", ErrPermission, what, subject)
	d.mu.Lock()
	defer d.mu.Unlock()
	for op := range d.pending {
		if what == "subscribe to" || subject == "" || op.on(subject) {
			op.cancel(cause)
		}
	}
}

// parseViolation reads what and which subject the server refused, e.g.
// `nats: permissions violation: Permissions Violation for Publish to "refit.m.c.1.2"`.
func parseViolation(text string) (what, subject string) {
	what = "publish to"
	if strings.Contains(text, "Subscription") {
		what = "subscribe to"
	}
	if _, rest, ok := strings.Cut(text, `"`); ok {
		subject, _, _ = strings.Cut(rest, `"`)
	}
	return what, subject
}
