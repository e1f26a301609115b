package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// records collects the refit records that receivers print.
type records struct {
	mu    sync.Mutex
	by    map[recordKey]*tracing.Record
	added chan struct{} // holds a token when a record has come since the last look
	seen  func(receiver int, r *tracing.Record)
	fatal error // a failure that no other attempt can mend
}

type recordKey struct {
	receiver int
	version  uint64
}

func newRecords(seen func(int, *tracing.Record)) *records {
	return &records{by: map[recordKey]*tracing.Record{}, added: make(chan struct{}, 1), seen: seen}
}

// line takes one line of a receiver's standard output; lines that carry no record are ignored.
func (rs *records) line(receiver int, text string) {
	body, found := strings.CutPrefix(text, tracing.RecordPrefix+" ")
	if !found {
		return
	}
	r := new(tracing.Record)
	if err := json.Unmarshal([]byte(body), r); err != nil {
		return
	}
	rs.mu.Lock()
	switch policy := refit.PolicyFor(refit.Class(r.Drydock.ErrorType)); {
	case r.Drydock.Outcome == tracing.OutcomeApplied:
		rs.by[recordKey{receiver, r.Version}] = r
	case !policy.Again && rs.fatal == nil:
		rs.fatal = fmt.Errorf("%s: %s", receiverName(receiver), r.Drydock.Error)
	}
	rs.mu.Unlock()
	rs.seen(receiver, r)
	select {
	case rs.added <- struct{}{}:
	default:
	}
}

// wait returns the records of all receivers for a version, as soon as all have applied it.
func (rs *records) wait(ctx context.Context, version uint64, receivers int, failed <-chan error) ([]*tracing.Record, error) {
	for {
		all, missing, err := rs.of(version, receivers)
		if err != nil || len(missing) == 0 {
			return all, err
		}
		select {
		case <-rs.added:
		case err := <-failed:
			return nil, err
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for version %d to be applied by %s: %w", version, strings.Join(missing, ", "), context.Cause(ctx))
		}
	}
}

func (rs *records) of(version uint64, receivers int) (all []*tracing.Record, missing []string, fatal error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for i := range receivers {
		r := rs.by[recordKey{i, version}]
		if r == nil {
			missing = append(missing, receiverName(i))
		}
		all = append(all, r)
	}
	return all, missing, rs.fatal
}
