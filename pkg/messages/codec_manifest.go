package messages

import (
	"math"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages/internal/columns"
	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

const (
	manifestSchema = "drydock.manifest.v1"
	endedSchema    = "drydock.ended.v1"
)

type wireManifest struct {
	Schema    string   `msgpack:"schema"`
	Model     string   `msgpack:"model"`
	Run       uint64   `msgpack:"run"`
	Version   uint64   `msgpack:"version"`
	World     uint64   `msgpack:"world"`
	Tables    []byte   `msgpack:"tables"` // world digests of 32 bytes
	Layouts   []byte   `msgpack:"layouts"`
	Endpoints []byte   `msgpack:"endpoints"`
	Tiles     []byte   `msgpack:"tiles"`  // 32 zero bytes: the rank has none
	Nbytes    []byte   `msgpack:"nbytes"` // plain
	Base      *wireRef `msgpack:"base,omitempty"`
}

// EncodeManifest writes a manifest. It is never compressed: committers of different
// builds and languages must write the same bytes.
func EncodeManifest(m *Manifest) ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, err
	}
	w := wireManifest{
		Schema: manifestSchema, Model: m.Model, Run: m.Key.Run, Version: m.Key.Version,
		World: uint64(m.World), Base: refOut(m.Base),
	}
	nbytes := make([]int64, len(m.Ranks))
	for i, r := range m.Ranks {
		w.Tables = append(w.Tables, r.Table[:]...)
		w.Layouts = append(w.Layouts, r.Layout[:]...)
		w.Endpoints = append(w.Endpoints, r.Endpoint[:]...)
		w.Tiles = append(w.Tiles, r.Tiles[:]...)
		nbytes[i] = r.Nbytes
	}
	w.Nbytes = columns.AppendPlain(nil, nbytes)
	out, err := pack(&w)
	if err != nil {
		return nil, err
	}
	return out, limited(manifestSchema, "payload bytes", int64(len(out)), MaxPayload-headerRoom)
}

// DecodeManifest reads a manifest.
func DecodeManifest(b []byte) (*Manifest, error) {
	var w wireManifest
	if err := unpack(manifestSchema, b, &w); err != nil {
		return nil, err
	}
	if err := checkSchema(manifestSchema, w.Schema); err != nil {
		return nil, err
	}
	m := &Manifest{
		Model: w.Model, Key: Key{Run: w.Run, Version: w.Version}, World: clampInt(w.World),
	}
	var err error
	if m.Base, err = refIn(manifestSchema, w.Base); err != nil {
		return nil, err
	}
	if err := checkWorld(manifestSchema, m.Key, m.World); err != nil {
		return nil, err
	}
	size := len(Digest{})
	for field, col := range map[string][]byte{"tables": w.Tables, "layouts": w.Layouts, "endpoints": w.Endpoints, "tiles": w.Tiles} {
		if len(col) != size*m.World {
			return nil, malformed(manifestSchema, field, "%d bytes for a world of %d", len(col), m.World)
		}
	}
	nbytes, err := columns.Plain[int64](w.Nbytes, m.World, math.MaxInt64)
	if err != nil {
		return nil, malformed(manifestSchema, "nbytes", "%v", err)
	}
	m.Ranks = make([]ManifestRank, m.World)
	for i := range m.Ranks {
		r, at := &m.Ranks[i], i*size
		copy(r.Table[:], w.Tables[at:])
		copy(r.Layout[:], w.Layouts[at:])
		copy(r.Endpoint[:], w.Endpoints[at:])
		copy(r.Tiles[:], w.Tiles[at:])
		r.Nbytes = nbytes[i]
	}
	return m, m.validate()
}

func (m *Manifest) validate() error {
	if err := checkText(manifestSchema, "model", m.Model, MaxName); err != nil {
		return err
	}
	if err := checkWorld(manifestSchema, m.Key, m.World); err != nil {
		return err
	}
	if len(m.Ranks) != m.World {
		return malformed(manifestSchema, "tables", "%d ranks for a world of %d", len(m.Ranks), m.World)
	}
	for i, r := range m.Ranks {
		if r.Table.IsZero() || r.Layout.IsZero() || r.Endpoint.IsZero() || r.Nbytes < 0 {
			return malformed(manifestSchema, "tables", "rank %d lacks a digest", i)
		}
	}
	return checkBase(manifestSchema, m.Base, m.Key)
}

// Ref names this version exactly: what a partial version on top of it names as its base,
// and what a receiver notes when it installs it. Of a manifest that can't be written
// the digest is zero, which is nobody's base.
func (m *Manifest) Ref() Ref {
	b, err := EncodeManifest(m)
	if err != nil {
		return Ref{Key: m.Key}
	}
	return Ref{Key: m.Key, Manifest: protocol.Sum(b)}
}

// Nbytes is the number of bytes that all ranks serve.
func (m *Manifest) Nbytes() int64 {
	total := int64(0)
	for _, r := range m.Ranks {
		total += r.Nbytes
	}
	return total
}

// EndState says how a version ended.
type EndState string

// The ends of a version.
const (
	EndAbandoned EndState = "abandoned" // never committed, never will be
	EndRetired   EndState = "retired"   // was committed, withdrawn since
)

// Ended stands in the place of a version's manifest once it can't be read any more.
// While it stands, no commit of that version can land.
type Ended struct {
	Model  string
	Key    Key
	State  EndState
	Reason string
	By     string
	At     time.Time // milliseconds
}

type wireEnded struct {
	Schema  string `msgpack:"schema"`
	Model   string `msgpack:"model"`
	Run     uint64 `msgpack:"run"`
	Version uint64 `msgpack:"version"`
	State   string `msgpack:"state"`
	Reason  string `msgpack:"reason"`
	By      string `msgpack:"by"`
	AtMs    uint64 `msgpack:"at_ms"` // Unix milliseconds
}

// EncodeEnded writes the end of a version.
func EncodeEnded(e *Ended) ([]byte, error) {
	if err := e.validate(); err != nil {
		return nil, err
	}
	return pack(&wireEnded{
		Schema: endedSchema, Model: e.Model, Run: e.Key.Run, Version: e.Key.Version,
		State: string(e.State), Reason: e.Reason, By: e.By, AtMs: millis(e.At),
	})
}

// DecodeEnded reads the end of a version.
func DecodeEnded(b []byte) (*Ended, error) {
	var w wireEnded
	if err := unpack(endedSchema, b, &w); err != nil {
		return nil, err
	}
	if err := checkSchema(endedSchema, w.Schema); err != nil {
		return nil, err
	}
	e := &Ended{
		Model: w.Model, Key: Key{Run: w.Run, Version: w.Version}, State: EndState(w.State),
		Reason: w.Reason, By: w.By, At: fromMillis(w.AtMs),
	}
	return e, e.validate()
}

func (e *Ended) validate() error {
	if err := checkWorld(endedSchema, e.Key, 1); err != nil {
		return err
	}
	if e.State != EndAbandoned && e.State != EndRetired {
		return malformed(endedSchema, "state", "is %.64q", string(e.State))
	}
	for field, text := range map[string]string{"model": e.Model, "reason": e.Reason, "by": e.By} {
		if err := checkText(endedSchema, field, text, MaxText); err != nil {
			return err
		}
	}
	return nil
}

// schemaOf reads no more of a payload than its schema.
func schemaOf(b []byte) (string, error) {
	var w struct {
		Schema string `msgpack:"schema"`
	}
	err := unpack("drydock", b, &w)
	return w.Schema, err
}

func millis(t time.Time) uint64 {
	if t.IsZero() || t.UnixMilli() < 0 {
		return 0
	}
	return uint64(t.UnixMilli())
}

func fromMillis(ms uint64) time.Time {
	if ms == 0 || ms > math.MaxInt64 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC()
}
