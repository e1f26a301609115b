package messages

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// Control is the control plane of one model. It is safe for concurrent use.
type Control struct{}

// Announcement tells of a committed version that is newer than all before.
type Announcement struct {
	Key     Key
	Headers map[string]string // trace context of the commit
	Skipped []Key             // committed versions that this announcement supersedes unseen
}

// Remote returns ctx with the remote span that the announcement carries.
func (a Announcement) Remote(ctx context.Context) context.Context { return ctx }

var errTodo = errors.New("not yet")

// Init creates the stream and the buckets.
func Init(ctx context.Context, nc *nats.Conn, cfg Config) error { return errTodo }

// Open opens the control plane of a model.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Control, error) { return nil, errTodo }

// Close stops what Control runs in the background.
func (c *Control) Close() error { return errTodo }

// TakeRun takes the next run for job, or returns the run that job already holds.
func (c *Control) TakeRun(ctx context.Context, job string, world int) (RunRecord, error) {
	return RunRecord{}, errTodo
}

// AwaitRun waits until job holds the newest run.
func (c *Control) AwaitRun(ctx context.Context, job string) (RunRecord, error) {
	return RunRecord{}, errTodo
}

// Publish stores one rank's part of a version.
func (c *Control) Publish(ctx context.Context, p Publication) error { return errTodo }

// Commit waits for all tables and writes or confirms the manifest.
func (c *Control) Commit(ctx context.Context, key Key, world int) (*Manifest, error) {
	return nil, errTodo
}

// Abandon ends a version that can't complete.
func (c *Control) Abandon(ctx context.Context, key Key, reason string) error { return errTodo }

// Retire withdraws a version and waits until nobody reads it.
func (c *Control) Retire(ctx context.Context, key Key, rank int) error { return errTodo }

// WaitDrained waits until no lease on key lives.
func (c *Control) WaitDrained(ctx context.Context, key Key) error { return errTodo }

// Watch announces committed versions, latest wins.
func (c *Control) Watch(ctx context.Context) (<-chan Announcement, error) { return nil, errTodo }

// Newest is the newest committed version.
func (c *Control) Newest(ctx context.Context) (Key, bool, error) { return Key{}, false, errTodo }

// Assemble reads all that a committed version consists of.
func (c *Control) Assemble(ctx context.Context, key Key) (*Version, error) { return nil, errTodo }

// AcquireLease claims a version for reading.
func (c *Control) AcquireLease(ctx context.Context, key Key, receiver string) (*Lease, error) {
	return nil, errTodo
}

// PutStatus replaces the status of one process.
func (c *Control) PutStatus(ctx context.Context, name string, s Status) error { return errTodo }

// Statuses reads all statuses, by name.
func (c *Control) Statuses(ctx context.Context) ([]Status, error) { return nil, errTodo }

// Lease is a receiver's claim that it is reading a version.
type Lease struct{}

// Key is the version that the lease holds.
func (l *Lease) Key() Key { return Key{} }

// Lost is closed when the lease is lost or released.
func (l *Lease) Lost() <-chan struct{} { return nil }

// Valid says whether the lease still holds by the monotonic clock, with a margin.
func (l *Lease) Valid() bool { return false }

// Err says why the lease was lost.
func (l *Lease) Err() error { return errTodo }

// Release gives the lease back.
func (l *Lease) Release(ctx context.Context) error { return errTodo }
