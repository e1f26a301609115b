package operator

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// VersionRow is one version as the servers and the processes know it.
type VersionRow struct {
	Version   string     `json:"version"`             // "<run>.<version>"
	State     string     `json:"state"`               // "publishing", "committed", "fenced", "retired", "abandoned"
	Newest    bool       `json:"newest"`              // what receivers should serve
	World     int        `json:"world,omitempty"`     // ranks that publish it
	Nbytes    int64      `json:"nbytes,omitempty"`    // that all ranks serve
	At        *time.Time `json:"at,omitempty"`        // of the commit, or of the end
	Base      string     `json:"base,omitempty"`      // the version that a partial one stands on
	Published []int      `json:"published,omitempty"` // ranks that say that they hold it, while it is not committed
	ServedBy  []string   `json:"served_by"`
	StagedBy  []string   `json:"staged_by"`
	ReadBy    []string   `json:"read_by"` // holders of a lease
	Reason    string     `json:"reason,omitempty"`

	key messages.Key
}

// VersionList is the answer of refitctl versions.
type VersionList struct {
	Model       string        `json:"model"`
	Run         uint64        `json:"run"`
	Job         string        `json:"job,omitempty"`
	Order       *OrderRow     `json:"order,omitempty"`
	Versions    []VersionRow  `json:"versions"` // oldest first
	Quarantined []Quarantined `json:"quarantined,omitempty"`

	receivers int
	now       time.Time
}

// OrderRow is an operator's order.
type OrderRow struct {
	N      uint64    `json:"n"`
	To     string    `json:"to"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Quarantined is a message that could not be read.
type Quarantined struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Nbytes  int       `json:"nbytes"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

func quarantine(all []messages.Quarantined) []Quarantined {
	var rows []Quarantined
	for _, q := range all {
		rows = append(rows, Quarantined(q))
	}
	return rows
}

func orderRow(o *messages.Order) *OrderRow {
	if o == nil {
		return nil
	}
	return &OrderRow{N: o.N, To: o.To.String(), By: o.By, Reason: o.Reason, At: o.At}
}

// VersionList lists the versions of a view, at most limit of the newest; 0: all.
func (v *View) VersionList(limit int) *VersionList {
	l := &VersionList{
		Model: v.Model, Run: v.Run.Run, Job: v.Run.Job, Order: orderRow(v.Order),
		Quarantined: quarantine(v.Quarantined), receivers: len(v.receivers()), now: v.Now,
	}
	l.Versions = []VersionRow{}
	for i := range v.Versions {
		l.Versions = append(l.Versions, v.committedRow(&v.Versions[i]))
	}
	l.Versions = append(l.Versions, v.publishing()...)
	slices.SortFunc(l.Versions, func(a, b VersionRow) int { return a.key.Compare(b.key) })
	if extra := len(l.Versions) - limit; limit > 0 && extra > 0 {
		l.Versions = l.Versions[extra:]
	}
	return l
}

func (v *View) committedRow(c *messages.Committed) VersionRow {
	r := v.row(c.Key)
	r.At = &c.At
	switch {
	case c.Ended != nil:
		r.State, r.Reason = string(c.Ended.State), c.Ended.Reason
	case c.Key.Run < v.Run.Run:
		r.State = "fenced"
	default:
		r.State = "committed"
	}
	if m := c.Manifest; m != nil {
		r.World, r.Nbytes = m.World, m.Nbytes()
		if m.Base != nil {
			r.Base = m.Base.Key.String()
		}
	}
	return r
}

func (v *View) row(k messages.Key) VersionRow {
	return VersionRow{
		key: k, Version: k.String(), Newest: !k.IsZero() && k == v.Newest,
		ServedBy: v.named(func(s *messages.Status) bool { return s.Serving == k }),
		StagedBy: v.named(func(s *messages.Status) bool { return s.Staging == k }),
		ReadBy:   append([]string{}, v.Leases[k]...),
	}
}

// publishing lists the versions that publishers hold and that have no commit: on their way, or stuck.
func (v *View) publishing() []VersionRow {
	var rows []VersionRow
	for _, p := range v.publishers() {
		for _, slot := range p.Slots {
			known := slices.ContainsFunc(v.Versions, func(c messages.Committed) bool { return c.Key == slot.Key })
			if slot.Key.IsZero() || known || slot.State != "published" && slot.State != "filling" {
				continue
			}
			i := slices.IndexFunc(rows, func(r VersionRow) bool { return r.key == slot.Key })
			if i < 0 {
				i, rows = len(rows), append(rows, v.row(slot.Key))
				rows[i].State = "publishing"
			}
			if slot.State == "published" {
				rows[i].Published = append(rows[i].Published, p.Ranks...)
			}
		}
	}
	for i := range rows {
		slices.Sort(rows[i].Published)
		if rows[i].key.Run == v.Run.Run {
			rows[i].World = v.Run.World
		}
	}
	return rows
}

// Write draws the list for people, the newest version first.
func (l *VersionList) Write(w io.Writer) error {
	t := table{head: []string{"VERSION", "STATE", "RANKS", "SIZE", "AT", "SERVED BY", "STAGED BY", "READ BY"}}
	for _, r := range slices.Backward(l.Versions) {
		t.add(r.Version, r.stateText(), r.ranksText(), r.sizeText(), l.ageText(&r),
			fmt.Sprintf("%d of %d", len(r.ServedBy), l.receivers), names(r.StagedBy), names(r.ReadBy))
	}
	if err := t.write(w, fmt.Sprintf("model %s has no versions", printable(l.Model))); err != nil {
		return err
	}
	if l.Order != nil {
		fmt.Fprintf(w, "\norder %d, %s: serve %s until a newer version is committed (%s: %s)\n",
			l.Order.N, age(l.now, l.Order.At), l.Order.To, printable(l.Order.By), printable(l.Order.Reason))
	}
	return writeQuarantined(w, l.Quarantined)
}

func (l *VersionList) ageText(r *VersionRow) string {
	if r.At == nil {
		return none
	}
	return age(l.now, *r.At)
}

func (r *VersionRow) stateText() string {
	s := r.State
	if r.Newest {
		s += ", newest"
	}
	if r.Base != "" {
		s += ", on " + r.Base
	}
	if r.Reason != "" {
		s += ": " + brief(r.Reason, 40)
	}
	return s
}

func (r *VersionRow) ranksText() string {
	switch {
	case r.State == "publishing":
		return fmt.Sprintf("%d of %d", len(r.Published), r.World)
	case r.World == 0:
		return none
	}
	return fmt.Sprint(r.World)
}

func (r *VersionRow) sizeText() string {
	if r.Nbytes == 0 {
		return none
	}
	return Size(r.Nbytes).String()
}

func writeQuarantined(w io.Writer, all []Quarantined) error {
	slices.SortStableFunc(all, func(a, b Quarantined) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, q := range all {
		_, err := fmt.Fprintf(w, "\nunreadable: %s (sequence %d, %d bytes): %s\n", printable(q.Subject), q.Seq, q.Nbytes, printable(q.Reason))
		if err != nil {
			return err
		}
	}
	return nil
}
