package messages

import (
	"sync"
	"time"
)

// Quarantined is a message that could not be read. It stays where it is; nobody acts on it.
type Quarantined struct {
	Subject string
	Seq     uint64
	Nbytes  int
	Reason  string
	At      time.Time
}

// quarantined keeps the newest bad messages and counts all of them, each once.
type quarantined struct {
	mu    sync.Mutex
	seen  map[string]uint64 // subject to sequence
	list  []Quarantined
	count uint64
}

const maxQuarantined = 64

// quarantine notes a bad message. Reading the same one again changes nothing.
func (c *Control) quarantine(m *stored, reason error) {
	if !c.bad.add(m, reason) {
		return
	}
	c.log.Error("quarantined a message", "subject", m.Subject, "sequence", m.Seq, "nbytes", len(m.Data), "reason", reason)
}

func (q *quarantined) add(m *stored, reason error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if seq, ok := q.seen[m.Subject]; ok && seq == m.Seq {
		return false
	}
	if q.seen == nil || len(q.seen) >= maxCached {
		q.seen = make(map[string]uint64)
	}
	q.seen[m.Subject] = m.Seq
	q.count++
	q.list = append(q.list, Quarantined{
		Subject: m.Subject, Seq: m.Seq, Nbytes: len(m.Data), Reason: reason.Error(), At: m.Time,
	})
	q.list = q.list[max(0, len(q.list)-maxQuarantined):]
	return true
}

// Quarantine lists the bad messages that this process has met, newest last, and how
// many there were in all.
func (c *Control) Quarantine() ([]Quarantined, uint64) {
	c.bad.mu.Lock()
	defer c.bad.mu.Unlock()
	return append([]Quarantined(nil), c.bad.list...), c.bad.count
}
