package messages

import "time"

const (
	runSchema    = "drydock.run.v1"
	leaseSchema  = "drydock.lease.v1"
	statusSchema = "drydock.status.v1"
)

type wireRun struct {
	Schema  string `msgpack:"schema"`
	Run     uint64 `msgpack:"run"`
	Job     string `msgpack:"job"`
	Nonce   []byte `msgpack:"nonce"`
	World   uint64 `msgpack:"world"`
	TakenMs uint64 `msgpack:"taken_ms"` // Unix milliseconds
}

// EncodeRun writes a run record.
func EncodeRun(r *RunRecord) ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	return pack(&wireRun{
		Schema: runSchema, Run: r.Run, Job: r.Job, Nonce: r.Nonce[:], World: uint64(r.World), TakenMs: millis(r.Taken),
	})
}

// DecodeRun reads a run record.
func DecodeRun(b []byte) (*RunRecord, error) {
	var w wireRun
	if err := unpack(runSchema, b, &w); err != nil {
		return nil, err
	}
	if err := checkSchema(runSchema, w.Schema); err != nil {
		return nil, err
	}
	r := &RunRecord{Run: w.Run, Job: w.Job, World: clampInt(w.World), Taken: fromMillis(w.TakenMs)}
	if len(w.Nonce) != len(r.Nonce) {
		return nil, malformed(runSchema, "nonce", "%d bytes, want %d", len(w.Nonce), len(r.Nonce))
	}
	copy(r.Nonce[:], w.Nonce)
	return r, r.validate()
}

func (r *RunRecord) validate() error {
	if err := checkText(runSchema, "job", r.Job, MaxName); err != nil {
		return err
	}
	return checkWorld(runSchema, Key{Run: r.Run}, r.World)
}

// LeaseRecord is a lease as it stands in its bucket.
type LeaseRecord struct {
	Key      Key
	Receiver string
	Holder   [16]byte // random, made anew by each acquisition
	Host     string
	TTL      time.Duration // milliseconds
}

type wireLease struct {
	Schema   string `msgpack:"schema"`
	Run      uint64 `msgpack:"run"`
	Version  uint64 `msgpack:"version"`
	Receiver string `msgpack:"receiver"`
	Holder   []byte `msgpack:"holder"`
	Host     string `msgpack:"host"`
	TTLMs    uint64 `msgpack:"ttl_ms"`
}

// EncodeLease writes a lease record.
func EncodeLease(l *LeaseRecord) ([]byte, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	return pack(&wireLease{
		Schema: leaseSchema, Run: l.Key.Run, Version: l.Key.Version, Receiver: l.Receiver,
		Holder: l.Holder[:], Host: l.Host, TTLMs: uint64(l.TTL.Milliseconds()),
	})
}

// DecodeLease reads a lease record.
func DecodeLease(b []byte) (*LeaseRecord, error) {
	var w wireLease
	if err := unpack(leaseSchema, b, &w); err != nil {
		return nil, err
	}
	if err := checkSchema(leaseSchema, w.Schema); err != nil {
		return nil, err
	}
	if w.TTLMs > uint64(maxTTL.Milliseconds()) {
		return nil, limited(leaseSchema, "ttl_ms", int64(min(w.TTLMs, 1<<62)), maxTTL.Milliseconds())
	}
	l := &LeaseRecord{
		Key: Key{Run: w.Run, Version: w.Version}, Receiver: w.Receiver, Host: w.Host,
		TTL: time.Duration(w.TTLMs) * time.Millisecond,
	}
	if len(w.Holder) != len(l.Holder) {
		return nil, malformed(leaseSchema, "holder", "%d bytes, want %d", len(w.Holder), len(l.Holder))
	}
	copy(l.Holder[:], w.Holder)
	return l, l.validate()
}

func (l *LeaseRecord) validate() error {
	if err := checkWorld(leaseSchema, l.Key, 1); err != nil {
		return err
	}
	if !isToken(l.Receiver) {
		return malformed(leaseSchema, "receiver", "%.80q is not a name of 1 to 64 of A-Z a-z 0-9 _ -", l.Receiver)
	}
	return checkText(leaseSchema, "host", l.Host, MaxText)
}

type wireStatus struct {
	Schema    string       `msgpack:"schema"`
	Role      string       `msgpack:"role"`
	Name      string       `msgpack:"name"`
	Host      string       `msgpack:"host"`
	Ranks     []uint64     `msgpack:"ranks"`
	UpdatedMs uint64       `msgpack:"updated_ms"` // Unix milliseconds
	Serving   *wireKey     `msgpack:"serving,omitempty"`
	Staging   *wireKey     `msgpack:"staging,omitempty"`
	Stage     string       `msgpack:"stage"`
	Failure   *wireFailure `msgpack:"failure,omitempty"`
	Skipped   []wireKey    `msgpack:"skipped,omitempty"`
	Arenas    []string     `msgpack:"arenas,omitempty"`
	Slots     []wireSlot   `msgpack:"slots,omitempty"`
	Job       string       `msgpack:"job"`
	Run       uint64       `msgpack:"run"`
	Keep      string       `msgpack:"keep,omitempty"`
}

type wireFailure struct {
	Class string   `msgpack:"class"`
	Text  string   `msgpack:"text"`
	Key   *wireKey `msgpack:"key,omitempty"`
	AtMs  uint64   `msgpack:"at_ms"`
}

type wireSlot struct {
	Key     *wireKey `msgpack:"key,omitempty"`
	State   string   `msgpack:"state"`
	Holders []string `msgpack:"holders,omitempty"`
}

// EncodeStatus writes a status. Texts that are too long are cut and lists lose their
// oldest entries: a status must get through when things are at their worst.
func EncodeStatus(s *Status) ([]byte, error) {
	if !isToken(s.Name) {
		return nil, malformed(statusSchema, "name", "%.80q is not a name of 1 to 64 of A-Z a-z 0-9 _ -", s.Name)
	}
	w := wireStatus{
		Schema: statusSchema, Role: string(s.Role), Name: s.Name, Host: cut(s.Host), UpdatedMs: millis(s.Updated),
		Serving: keyOrNil(s.Serving), Staging: keyOrNil(s.Staging), Stage: cut(s.StageState),
		Arenas: newest(s.Arenas), Job: cut(s.Job), Run: s.Run, Keep: cut(s.Keep), Ranks: []uint64{},
	}
	for _, r := range newest(s.Ranks) {
		w.Ranks = append(w.Ranks, uint64(max(r, 0)))
	}
	if f := s.Failure; f != nil {
		w.Failure = &wireFailure{Class: cut(f.Class), Text: cut(f.Text), Key: keyOrNil(f.Key), AtMs: millis(f.At)}
	}
	for _, k := range newest(s.Skipped) {
		w.Skipped = append(w.Skipped, wireKey(k))
	}
	for _, slot := range newest(s.Slots) {
		w.Slots = append(w.Slots, wireSlot{Key: keyOrNil(slot.Key), State: cut(slot.State), Holders: newest(slot.Holders)})
	}
	out, err := pack(&w)
	if err != nil {
		return nil, err
	}
	return squeeze(out)
}

// DecodeStatus reads a status.
func DecodeStatus(b []byte) (*Status, error) {
	var w wireStatus
	if err := unpack(statusSchema, b, &w); err != nil {
		return nil, err
	}
	if err := checkSchema(statusSchema, w.Schema); err != nil {
		return nil, err
	}
	for what, n := range map[string]int{"ranks": len(w.Ranks), "skipped": len(w.Skipped), "arenas": len(w.Arenas), "slots": len(w.Slots)} {
		if err := limited(statusSchema, what, int64(n), MaxList); err != nil {
			return nil, err
		}
	}
	s := &Status{
		Role: Role(w.Role), Name: w.Name, Host: w.Host, Updated: fromMillis(w.UpdatedMs),
		Serving: keyOrZero(w.Serving), Staging: keyOrZero(w.Staging), StageState: w.Stage,
		Arenas: w.Arenas, Job: w.Job, Run: w.Run, Keep: w.Keep,
	}
	for _, r := range w.Ranks {
		s.Ranks = append(s.Ranks, clampInt(r))
	}
	if f := w.Failure; f != nil {
		s.Failure = &Failure{Class: f.Class, Text: f.Text, Key: keyOrZero(f.Key), At: fromMillis(f.AtMs)}
	}
	for _, k := range w.Skipped {
		s.Skipped = append(s.Skipped, Key(k))
	}
	for _, slot := range w.Slots {
		s.Slots = append(s.Slots, Slot{Key: keyOrZero(slot.Key), State: slot.State, Holders: slot.Holders})
	}
	return s, nil
}

// cut keeps the beginning of a text, on a rune's boundary.
func cut(s string) string {
	if len(s) <= MaxText {
		return s
	}
	end := MaxText
	for end > 0 && s[end]&0xc0 == 0x80 {
		end--
	}
	return s[:end]
}

// newest keeps the last entries of a list.
func newest[T any](list []T) []T {
	return list[max(0, len(list)-MaxList):]
}

func keyOrNil(k Key) *wireKey {
	if k.IsZero() {
		return nil
	}
	return keyOut(&k)
}

// keyOrZero reads an optional key. Runs count from 1: a key of run 0 is none, as if it were left out.
func keyOrZero(w *wireKey) Key {
	if w == nil || w.Run == 0 {
		return Key{}
	}
	return Key(*w)
}
