package arena

// Usage is how many slots are in one state, and their bytes.
type Usage struct {
	Slots  int
	Nbytes int64
}

// The states of slots, as metrics name them.
var stateNames = map[state]string{
	stateFree: "free", stateStaging: "staging", stateServing: "serving", stateRetained: "retained",
}

// stateQuarantined is how metrics name slots that a transfer may still write to.
const stateQuarantined = "quarantined"

// Usage counts slots by state: free, staging, serving, retained and quarantined are always all there, so that a gauge goes
// back to zero.
func (s *Set) Usage() map[string]Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]Usage{stateQuarantined: {len(s.held), int64(len(s.held)) * s.slotBytes()}}
	for _, name := range stateNames {
		all[name] = Usage{}
	}
	for _, slot := range s.slots {
		u := all[stateNames[slot.state]]
		u.Slots++
		u.Nbytes += s.slotBytes()
		all[stateNames[slot.state]] = u
	}
	return all
}
