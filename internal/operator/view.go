package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// View is all that the servers know of a model at one moment.
type View struct {
	Model       string
	Now         time.Time
	Run         messages.RunRecord // zero: none was ever taken
	Newest      messages.Key       // what receivers should serve; zero: nothing
	Order       *messages.Order    // the newest; nil: none
	Versions    []messages.Committed
	Statuses    []messages.Status
	Leases      map[messages.Key][]string // receivers by the version that they read; only of the newest versions
	Quarantined []messages.Quarantined    // bad messages that were met while looking
}

// leaseLooks is of how many standing versions, the newest, the leases are read: each costs a request.
const leaseLooks = 16

// Look reads the view.
func Look(ctx context.Context, c *messages.Control, now time.Time) (*View, error) {
	v := &View{Model: c.Model(), Now: now}
	var err error
	if v.Run, _, err = c.Run(ctx); err != nil {
		return nil, fmt.Errorf("read the newest run: %w", err)
	}
	if v.Versions, err = c.Versions(ctx); err != nil {
		return nil, err
	}
	if v.Newest, _, err = c.Newest(ctx); err != nil {
		return nil, fmt.Errorf("read the newest version: %w", err)
	}
	if v.Order, _, err = c.LastOrder(ctx); err != nil {
		return nil, fmt.Errorf("read the last order: %w", err)
	}
	if v.Statuses, err = c.Statuses(ctx); err != nil {
		return nil, err
	}
	if err := v.readLeases(ctx, c); err != nil {
		return nil, err
	}
	v.Quarantined, _ = c.Quarantine()
	return v, nil
}

func (v *View) readLeases(ctx context.Context, c *messages.Control) error {
	v.Leases = map[messages.Key][]string{}
	for _, ver := range slices.Backward(v.Versions) {
		if len(v.Leases) == leaseLooks {
			break
		}
		holders, err := c.Holders(ctx, ver.Key)
		if err != nil {
			return err
		}
		v.Leases[ver.Key] = holders
	}
	return nil
}

// receivers lists the statuses of receivers.
func (v *View) receivers() []messages.Status { return v.of(messages.RoleReceiver) }

// publishers lists the statuses of publishers.
func (v *View) publishers() []messages.Status { return v.of(messages.RolePublisher) }

func (v *View) of(role messages.Role) []messages.Status {
	var some []messages.Status
	for i := range v.Statuses {
		if v.Statuses[i].Role == role {
			some = append(some, v.Statuses[i])
		}
	}
	return some
}

// named lists the receivers of whose status a test holds.
func (v *View) named(test func(*messages.Status) bool) []string {
	all := []string{}
	for _, s := range v.receivers() {
		if test(&s) {
			all = append(all, s.Name)
		}
	}
	return all
}

// lag counts the versions that stand and are newer than one, of the newest run.
func (v *View) lag(serving messages.Key) int {
	n := 0
	for _, ver := range v.Versions {
		if ver.Manifest != nil && ver.Key.Run == v.Run.Run && serving.Less(ver.Key) && ver.Key.Compare(v.Newest) <= 0 {
			n++
		}
	}
	return n
}

// keyText draws a version, zero as nothing.
func keyText(k messages.Key) string {
	if k.IsZero() {
		return ""
	}
	return k.String()
}
