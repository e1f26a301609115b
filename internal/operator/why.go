package operator

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// Explanation is the answer of refitctl why: what a version waits for, and what each process says of it.
type Explanation struct {
	Model     string   `json:"model"`
	Version   string   `json:"version"`
	State     string   `json:"state"` // "unknown", "incomplete", "committed", "retired", "abandoned"
	Newest    bool     `json:"newest"`
	Fenced    bool     `json:"fenced"`
	Beyond    bool     `json:"beyond,omitempty"` // its run is one that was never taken on this server
	World     int      `json:"world,omitempty"`
	Nbytes    int64    `json:"nbytes,omitempty"`
	Reason    string   `json:"reason,omitempty"` // why it ended
	Published []int    `json:"published"`        // ranks whose table is there
	Missing   []Saying `json:"missing"`          // ranks whose table is not
	Conflicts []string `json:"conflicts"`        // whose table contradicts what
	Holders   []string `json:"holders"`          // receivers with a lease
	Receivers []Saying `json:"receivers"`        // what each says of the version
	Newer     string   `json:"newer,omitempty"`  // what receivers should serve instead

	order    string // that took receivers back from this version
	fencedBy uint64
	job      string
}

// Saying is what somebody says.
type Saying struct {
	Who  string `json:"who"`
	Says string `json:"says"`
}

// Why explains a version. The zero key is the newest that anybody speaks of.
func Why(ctx context.Context, c *messages.Control, v *View, k messages.Key) (*Explanation, error) {
	if k.IsZero() {
		if k = v.newestSpokenOf(); k.IsZero() {
			return nil, fmt.Errorf("model %q has no version, and no publisher is at work on one", v.Model)
		}
	}
	r, err := c.Why(ctx, k)
	if err != nil {
		return nil, err
	}
	return v.explain(r), nil
}

// newestSpokenOf is the newest version that is committed, held by a publisher, or known to a receiver.
func (v *View) newestSpokenOf() messages.Key {
	var top messages.Key
	consider := func(k messages.Key) {
		if top.Less(k) {
			top = k
		}
	}
	for _, c := range v.Versions {
		consider(c.Key)
	}
	for _, s := range v.Statuses {
		consider(s.Serving)
		consider(s.Staging)
		for _, slot := range s.Slots {
			consider(slot.Key)
		}
	}
	return top
}

func (v *View) explain(r *messages.Report) *Explanation {
	e := &Explanation{
		Model: v.Model, Version: r.Key.String(), Newest: r.Key == v.Newest, Fenced: r.Fenced, World: r.World,
		Published: append([]int{}, r.Published...), Missing: []Saying{},
		Conflicts: append([]string{}, r.Conflicts...), Holders: append([]string{}, r.Holders...),
		Receivers: []Saying{}, Beyond: r.Run.Run < r.Key.Run, fencedBy: r.Run.Run, job: r.Run.Job,
	}
	switch {
	case r.Ended != nil:
		e.State, e.Reason = string(r.Ended.State), r.Ended.Reason
	case r.Manifest != nil:
		e.State, e.Nbytes = "committed", r.Manifest.Nbytes()
	case len(r.Published) == 0 && !v.held(r.Key):
		e.State = "unknown"
	default:
		e.State = "incomplete"
	}
	if r.Ended == nil && e.State != "unknown" {
		for _, rank := range r.Missing {
			e.Missing = append(e.Missing, Saying{Who: fmt.Sprintf("rank %d", rank), Says: v.rankSays(r.Key, rank)})
		}
	}
	rolledBack := e.State == "committed" && v.Newest.Less(r.Key) && !v.Newest.IsZero()
	if r.Key.Less(v.Newest) || rolledBack {
		e.Newer = v.Newest.String()
	}
	if rolledBack && v.Order != nil {
		e.order = fmt.Sprintf(", by order %d (%s: %s)", v.Order.N, v.Order.By, v.Order.Reason)
	}
	for _, s := range v.receivers() {
		e.Receivers = append(e.Receivers, Saying{Who: s.Name, Says: receiverSays(&s, r.Key)})
	}
	return e
}

// held says whether a publisher has a version in a slot.
func (v *View) held(k messages.Key) bool {
	return slices.ContainsFunc(v.publishers(), func(s messages.Status) bool {
		return slices.ContainsFunc(s.Slots, func(slot messages.Slot) bool { return slot.Key == k })
	})
}

// rankSays is what the publisher of a rank whose table is missing says of itself.
func (v *View) rankSays(k messages.Key, rank int) string {
	for _, s := range v.publishers() {
		if s.Run != k.Run || !slices.Contains(s.Ranks, rank) {
			continue
		}
		var slots []SlotRow
		for _, slot := range s.Slots {
			slots = append(slots, v.slotRow(slot))
		}
		return fmt.Sprintf("%s on %s, seen %s: %s", s.Name, s.Host, age(v.Now, s.Updated), slotsText(slots))
	}
	return "no publisher has reported for it within the last minute: is it running?"
}

// receiverSays is what a receiver says of a version.
func receiverSays(s *messages.Status, k messages.Key) string {
	var parts []string
	switch {
	case s.Serving == k:
		parts = append(parts, "serves it")
	case s.Serving.IsZero():
		parts = append(parts, "serves nothing yet")
	default:
		parts = append(parts, "serves "+s.Serving.String())
	}
	switch {
	case s.Staging == k && s.StageState != "":
		parts = append(parts, "stages it: "+s.StageState)
	case s.Staging == k && !k.IsZero():
		parts = append(parts, "stages it")
	case !s.Staging.IsZero():
		parts = append(parts, "stages "+s.Staging.String())
	}
	if slices.Contains(s.Skipped, k) {
		parts = append(parts, "skipped it: a newer version came first")
	}
	if f := s.Failure; f != nil && f.Key == k {
		parts = append(parts, fmt.Sprintf("failed at it: %s: %s", f.Class, f.Text))
	}
	return strings.Join(parts, "; ")
}

// Write tells it in sentences, the most important first.
func (e *Explanation) Write(w io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(printable(fmt.Sprintf(format, args...)) + "\n") }
	line("%s", e.verdict())
	if e.Fenced {
		line("Its run is fenced by run %d of job %q: it can neither be committed nor applied.", e.fencedBy, e.job)
	}
	for _, c := range e.Conflicts {
		line("Conflict: %s.", c)
	}
	if len(e.Missing) > 0 {
		line("Missing are the tables of %d of %d ranks:", len(e.Missing), e.World)
		sayings(line, e.Missing)
	}
	if len(e.Holders) > 0 {
		line("Held by leases of %s: its bytes stay until they are released or expire.", strings.Join(e.Holders, ", "))
	}
	switch {
	case len(e.Receivers) == 0:
		line("No receiver has reported within the last minute.")
	default:
		line("Receivers:")
		sayings(line, e.Receivers)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shownSayings bounds a list of what people must read; --json has all.
const shownSayings = 24

func sayings(line func(string, ...any), all []Saying) {
	for i, s := range all {
		if i == shownSayings {
			line("  … and %d more", len(all)-i)
			return
		}
		line("  %s: %s", s.Who, s.Says)
	}
}

func (e *Explanation) verdict() string {
	switch e.State {
	case "committed":
		text := fmt.Sprintf("Version %s is committed: %d ranks, %s.", e.Version, e.World, Size(e.Nbytes))
		switch {
		case e.Newest:
			text += " It is what receivers should serve."
		case e.Newer != "":
			text += fmt.Sprintf(" Receivers should serve %s instead%s.", e.Newer, e.order)
		}
		return text
	case "unknown":
		text := fmt.Sprintf("Nobody has published anything of version %s.", e.Version)
		if e.Beyond {
			text += fmt.Sprintf(" It is of a run that this server does not know, whose newest is %d: the server has lost its data, or is another one. "+
				"Receivers that serve it follow nothing else until they are ordered to: refitctl rollback.", e.fencedBy)
		}
		return text
	case "incomplete":
		return fmt.Sprintf("Version %s is not committed: %d of %d ranks have published.", e.Version, len(e.Published), e.World)
	}
	return fmt.Sprintf("Version %s is %s: %s.", e.Version, e.State, orNone(strings.TrimSuffix(e.Reason, ".")))
}
