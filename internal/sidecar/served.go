package sidecar

import (
	"context"
	"fmt"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// served looks which receivers serve a version, or a newer one.
func (a *arena) served(ctx context.Context, r *ServedRequest) (*ServedAnswer, error) {
	a.mu.Lock()
	e := a.engine
	a.mu.Unlock()
	if e == nil {
		return &ServedAnswer{Receivers: []string{}}, nil
	}
	statuses, err := a.control.Statuses(ctx)
	if err != nil {
		return nil, coded(err)
	}
	key := messages.Key{Run: e.run().Run, Version: r.Version}
	out := &ServedAnswer{Receivers: []string{}}
	for i := range statuses {
		s := &statuses[i]
		switch {
		case s.Role != messages.RoleReceiver:
		case !s.Serving.Less(key):
			out.Receivers = append(out.Receivers, s.Name)
		case s.Failure != nil:
			out.Others = append(out.Others, fmt.Sprintf("%s serves %s and failed: %s", s.Name, s.Serving, s.Failure.Text))
		default:
			out.Others = append(out.Others, fmt.Sprintf("%s serves %s, state %q", s.Name, s.Serving, s.StageState))
		}
	}
	out.Enough = len(out.Receivers) >= r.Receivers
	return out, nil
}
