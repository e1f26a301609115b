package tracing

import "time"

// union measures the time during which at least one of several overlapping
// intervals is open. Intervals begin and end in the order of the clock, so a
// counter is enough: no interval is kept.
type union struct {
	open  int           // intervals now open
	since time.Time     // when open rose from 0
	total time.Duration // of the times when open was above 0, up to since
	first time.Time     // begin of the first interval
	last  time.Time     // latest end seen
}

func (u *union) begin(now time.Time) {
	if u.open == 0 {
		u.since = now
		if now.Before(u.last) { // booked late: that time is counted already
			u.since = u.last
		}
	}
	if u.first.IsZero() {
		u.first = now
	}
	u.open++
}

func (u *union) end(now time.Time) {
	if u.open == 0 { // ended twice
		return
	}
	u.open--
	u.last = now
	if u.open == 0 {
		u.total += now.Sub(u.since)
	}
}

// at returns the length of the union up to now, open intervals included.
func (u *union) at(now time.Time) time.Duration {
	if u.open == 0 {
		return u.total
	}
	return u.total + now.Sub(u.since)
}

// gaps returns the time between the first begin and the last end that no
// interval covers.
func (u *union) gaps() time.Duration {
	if u.last.IsZero() {
		return 0
	}
	return max(0, u.last.Sub(u.first)-u.total)
}
