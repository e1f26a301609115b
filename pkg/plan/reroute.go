package plan

import "errors"

// Reroute plans the bytes of one batch anew from ranks that avoid does not name. The new plan writes
// the same destination bytes; the error names what has no replica.
func (p *Plan) Reroute(batch int, avoid func(rank int) bool) (*Plan, error) {
	return nil, errors.New("plan: not built yet")
}
