package messages

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/drydock-rl/drydock/pkg/messages/internal/columns"
	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

const (
	tableSchema    = "drydock.table.v1"
	endpointSchema = "drydock.endpoint.v1"
	tilesSchema    = "drydock.tiles.v1"
	bareSchema     = "drydock.tiles.v2" // some sources carry none: a reader of v1 would take their zeros for digests
)

// wireBlob is a Blob as it travels.
type wireBlob struct {
	Digest []byte `msgpack:"digest"`
	Nbytes uint64 `msgpack:"nbytes"`
	Inline []byte `msgpack:"inline,omitempty"`
}

func (w *wireBlob) fields() fields {
	return fields{"digest": &w.Digest, "nbytes": &w.Nbytes, "inline": &w.Inline}
}

// wireKey is a Key as it travels inside other messages.
type wireKey struct {
	Run     uint64 `msgpack:"run"`
	Version uint64 `msgpack:"version"`
}

type wireTable struct {
	Schema   string    `msgpack:"schema"`
	Model    string    `msgpack:"model"`
	Run      uint64    `msgpack:"run"`
	Version  uint64    `msgpack:"version"`
	Rank     uint64    `msgpack:"rank"`
	World    uint64    `msgpack:"world"`
	Nbytes   uint64    `msgpack:"nbytes"`
	Layout   wireBlob  `msgpack:"layout"`
	Endpoint wireBlob  `msgpack:"endpoint"`
	Tiles    *wireBlob `msgpack:"tiles,omitempty"`
	Base     *wireRef  `msgpack:"base,omitempty"`
	NRegions uint64    `msgpack:"nregions,omitempty"`
	Regions  []byte    `msgpack:"regions,omitempty"` // deltas
	NChanged uint64    `msgpack:"nchanged,omitempty"`
	Changed  []byte    `msgpack:"changed,omitempty"` // deltas
	Grouped  bool      `msgpack:"grouped,omitempty"`
}

func (w *wireTable) fields() fields {
	return fields{
		"schema": &w.Schema, "model": &w.Model, "run": &w.Run, "version": &w.Version, "rank": &w.Rank, "world": &w.World,
		"nbytes": &w.Nbytes, "layout": &w.Layout, "endpoint": &w.Endpoint, "tiles": optional[wireBlob]{&w.Tiles}, "base": &w.Base,
		"nregions": &w.NRegions, "regions": &w.Regions, "nchanged": &w.NChanged, "changed": &w.Changed, "grouped": &w.Grouped,
	}
}

// EncodeTable writes a table.
func EncodeTable(t *Table) ([]byte, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	w := wireTable{
		Schema: tableSchema, Model: t.Model, Run: t.Key.Run, Version: t.Key.Version,
		Rank: uint64(t.Rank), World: uint64(t.World), Nbytes: uint64(t.Nbytes),
		Layout: t.Layout.wire(), Endpoint: t.Endpoint.wire(),
		NRegions: uint64(len(t.Regions)), Regions: columns.AppendDeltas(nil, t.Regions),
		Base: refOut(t.Base), NChanged: uint64(len(t.Changed)), Changed: columns.AppendDeltas(nil, t.Changed),
		Grouped: t.Grouped,
	}
	if !t.Tiles.Digest.IsZero() {
		b := t.Tiles.wire()
		w.Tiles = &b
	}
	plain, err := pack(&w)
	if err != nil {
		return nil, err
	}
	out, err := squeeze(plain)
	if err != nil {
		return nil, err
	}
	return out, limited(tableSchema, "payload bytes", int64(len(out)), MaxPayload-headerRoom)
}

// DecodeTable reads a table.
func DecodeTable(b []byte) (*Table, error) {
	var w wireTable
	if err := unpack(tableSchema, b, &w); err != nil {
		return nil, err
	}
	if err := checkSchema(tableSchema, w.Schema); err != nil {
		return nil, err
	}
	t := &Table{
		Model: w.Model, Key: Key{Run: w.Run, Version: w.Version},
		Rank: clampInt(w.Rank), World: clampInt(w.World), Nbytes: int64(min(w.Nbytes, math.MaxInt64)),
		Grouped: w.Grouped,
	}
	var err error
	if t.Base, err = refIn(tableSchema, w.Base); err != nil {
		return nil, err
	}
	for _, b := range []struct {
		field string
		from  *wireBlob
		to    *Blob
	}{{"layout", &w.Layout, &t.Layout}, {"endpoint", &w.Endpoint, &t.Endpoint}, {"tiles", w.Tiles, &t.Tiles}} {
		if b.from == nil {
			continue
		}
		if err := b.from.read(b.field, b.to); err != nil {
			return nil, err
		}
	}
	if err := limited(tableSchema, "changed sources", int64(min(w.NChanged, 1<<62)), MaxSources); err != nil {
		return nil, err
	}
	if err := limited(tableSchema, "regions", int64(min(w.NRegions, 1<<62)), MaxRegions); err != nil {
		return nil, err
	}
	if t.Regions, err = columns.Deltas[uint32](w.Regions, int(w.NRegions), MaxRegions-1); err != nil {
		return nil, malformed(tableSchema, "regions", "%v", err)
	}
	if t.Changed, err = columns.Deltas[uint32](w.Changed, int(w.NChanged), MaxSources-1); err != nil {
		return nil, malformed(tableSchema, "changed", "%v", err)
	}
	return t, t.validate()
}

func (t *Table) validate() error {
	if err := checkText(tableSchema, "model", t.Model, MaxName); err != nil {
		return err
	}
	if err := checkWorld(tableSchema, t.Key, t.World); err != nil {
		return err
	}
	if t.Rank < 0 || t.Rank >= t.World {
		return malformed(tableSchema, "rank", "is %d of world %d", t.Rank, t.World)
	}
	if t.Nbytes < 0 || t.Layout.Digest.IsZero() || t.Endpoint.Digest.IsZero() {
		return malformed(tableSchema, "layout", "layout, endpoint and their byte counts are required")
	}
	if t.Base == nil && len(t.Changed) > 0 {
		return malformed(tableSchema, "changed", "names changes without a base")
	}
	if err := checkBase(tableSchema, t.Base, t.Key); err != nil {
		return err
	}
	return ascending(tableSchema, "changed", t.Changed)
}

func (b *Blob) wire() wireBlob {
	return wireBlob{Digest: b.Digest[:], Nbytes: uint64(b.Nbytes), Inline: b.Inline}
}

func (w *wireBlob) read(field string, b *Blob) error {
	if len(w.Digest) != len(b.Digest) {
		return malformed(tableSchema, field, "digest of %d bytes, want %d", len(w.Digest), len(b.Digest))
	}
	if w.Nbytes == 0 || w.Nbytes > MaxBlob {
		return limited(tableSchema, field+" bytes", int64(min(w.Nbytes-1, 1<<62))+1, MaxBlob)
	}
	copy(b.Digest[:], w.Digest)
	b.Nbytes, b.Inline = int64(w.Nbytes), w.Inline
	if b.Inline != nil && (int64(len(b.Inline)) != b.Nbytes || protocol.Sum(b.Inline) != b.Digest) {
		return malformed(tableSchema, field, "inline bytes do not have the digest %s", b.Digest.Short())
	}
	return nil
}

// wireEndpoint is an endpoint as it travels.
type wireEndpoint struct {
	Schema      string       `msgpack:"schema"`
	Rank        uint64       `msgpack:"rank"`
	Host        string       `msgpack:"host"`
	Incarnation string       `msgpack:"incarnation"`
	NRegions    uint64       `msgpack:"nregions"`
	Bases       []byte       `msgpack:"bases"`  // 8 bytes each, little-endian: addresses use all 64 bits
	Nbytes      []byte       `msgpack:"nbytes"` // deltas
	Devices     []string     `msgpack:"devices"`
	Access      []wireAccess `msgpack:"access"`
}

type wireAccess struct {
	Transport string `msgpack:"transport"`
	Agent     string `msgpack:"agent"`
	Metadata  []byte `msgpack:"metadata"`
}

// EncodeEndpoint writes an endpoint as a blob.
func EncodeEndpoint(e *Endpoint) ([]byte, error) {
	if err := e.validate(); err != nil {
		return nil, err
	}
	w := wireEndpoint{
		Schema: endpointSchema, Rank: uint64(e.Rank), Host: e.Host, Incarnation: e.Incarnation,
		NRegions: uint64(len(e.Regions)), Bases: []byte{}, Nbytes: []byte{}, Devices: []string{}, Access: []wireAccess{},
	}
	sizes := make([]int64, len(e.Regions))
	for i, r := range e.Regions {
		w.Bases = binary.LittleEndian.AppendUint64(w.Bases, r.Base)
		w.Devices = append(w.Devices, r.Device)
		sizes[i] = r.Nbytes
	}
	w.Nbytes = columns.AppendDeltas(w.Nbytes, sizes)
	for _, a := range e.Access {
		w.Access = append(w.Access, wireAccess(a))
	}
	plain, err := pack(&w)
	if err != nil {
		return nil, err
	}
	return squeeze(plain)
}

// DecodeEndpoint reads an endpoint.
func DecodeEndpoint(b []byte) (*Endpoint, error) {
	var w wireEndpoint
	if err := unpack(endpointSchema, b, &w); err != nil {
		return nil, err
	}
	if err := checkSchema(endpointSchema, w.Schema); err != nil {
		return nil, err
	}
	n := clampInt(w.NRegions)
	if err := limited(endpointSchema, "regions", int64(n), MaxRegions); err != nil {
		return nil, err
	}
	if len(w.Bases) != 8*n || len(w.Devices) != n {
		return nil, malformed(endpointSchema, "bases", "%d bytes and %d devices for %d regions", len(w.Bases), len(w.Devices), n)
	}
	sizes, err := columns.Deltas[int64](w.Nbytes, n, math.MaxInt64)
	if err != nil {
		return nil, malformed(endpointSchema, "nbytes", "%v", err)
	}
	e := &Endpoint{Rank: clampInt(w.Rank), Host: w.Host, Incarnation: w.Incarnation}
	for i := range n {
		e.Regions = append(e.Regions, EndpointRegion{
			Base: binary.LittleEndian.Uint64(w.Bases[8*i:]), Nbytes: sizes[i], Device: w.Devices[i],
		})
	}
	for _, a := range w.Access {
		e.Access = append(e.Access, Access(a))
	}
	return e, e.validate()
}

func (e *Endpoint) validate() error {
	if e.Rank < 0 || e.Rank >= MaxWorld {
		return limited(endpointSchema, "rank", int64(uint(e.Rank)), MaxWorld-1)
	}
	for field, text := range map[string]string{"host": e.Host, "incarnation": e.Incarnation} {
		if err := checkText(endpointSchema, field, text, MaxText); err != nil {
			return err
		}
	}
	if err := limited(endpointSchema, "regions", int64(len(e.Regions)), MaxRegions); err != nil {
		return err
	}
	if err := limited(endpointSchema, "transports", int64(len(e.Access)), MaxAccess); err != nil {
		return err
	}
	for i, r := range e.Regions {
		if r.Nbytes < 0 || r.Base+uint64(r.Nbytes) < r.Base {
			return malformed(endpointSchema, "nbytes", "region %d: %d bytes from 0x%x", i, r.Nbytes, r.Base)
		}
		if err := checkText(endpointSchema, "devices", r.Device, MaxName); err != nil {
			return err
		}
	}
	for _, a := range e.Access {
		if err := checkText(endpointSchema, "access", a.Transport+a.Agent, MaxText); err != nil {
			return err
		}
		if err := limited(endpointSchema, "metadata bytes", int64(len(a.Metadata)), MaxMetadata); err != nil {
			return err
		}
	}
	return nil
}

type wireTiles struct {
	Schema  string `msgpack:"schema"`
	NTiles  uint64 `msgpack:"ntiles"`
	Digests []byte `msgpack:"digests"` // 8 bytes each, little-endian
	NBare   uint64 `msgpack:"nbare,omitempty"`
	Bare    []byte `msgpack:"bare,omitempty"` // deltas; v2 only
}

func (w *wireTiles) fields() fields {
	return fields{"schema": &w.Schema, "ntiles": &w.NTiles, "digests": &w.Digests, "nbare": &w.NBare, "bare": &w.Bare}
}

// EncodeTiles writes tile digests as a blob. Digests do not compress, so it never does.
func EncodeTiles(t *Tiles) ([]byte, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	w := wireTiles{Schema: tilesSchema, NTiles: uint64(len(t.Digests)), Digests: make([]byte, 0, 8*len(t.Digests))}
	if len(t.Bare) > 0 {
		w.Schema, w.NBare, w.Bare = bareSchema, uint64(len(t.Bare)), columns.AppendDeltas(nil, t.Bare)
	}
	for _, d := range t.Digests {
		w.Digests = binary.LittleEndian.AppendUint64(w.Digests, d)
	}
	return pack(&w)
}

// DecodeTiles reads tile digests.
func DecodeTiles(b []byte) (*Tiles, error) {
	var w wireTiles
	if err := unpack(tilesSchema, b, &w); err != nil {
		return nil, err
	}
	if w.Schema != bareSchema {
		if err := checkSchema(tilesSchema, w.Schema); err != nil {
			return nil, err
		}
		w.NBare, w.Bare = 0, nil // keys that version 1 does not have
	}
	if w.NTiles > MaxTiles || uint64(len(w.Digests)) != 8*w.NTiles {
		return nil, malformed(tilesSchema, "digests", "%d bytes for %d tiles", len(w.Digests), w.NTiles)
	}
	t := &Tiles{Digests: unpackDigests(w.Digests)}
	if err := limited(w.Schema, "bare sources", int64(min(w.NBare, 1<<62)), MaxSources); err != nil {
		return nil, err
	}
	var err error
	if t.Bare, err = columns.Deltas[uint32](w.Bare, int(w.NBare), MaxSources-1); err != nil {
		return nil, malformed(w.Schema, "bare", "%v", err)
	}
	return t, t.validate()
}

// unpackDigests reads eight bytes a digest. It is most of what decoding costs for a
// version whose layouts are known: four at a time, from windows of constant size, need
// one bounds check instead of four, and half the time.
func unpackDigests(packed []byte) []uint64 {
	digests := make([]uint64, len(packed)/8)
	rest := digests
	for len(rest) >= 4 && len(packed) >= 32 {
		four, from := rest[:4:4], packed[:32:32]
		four[0] = binary.LittleEndian.Uint64(from[0:])
		four[1] = binary.LittleEndian.Uint64(from[8:])
		four[2] = binary.LittleEndian.Uint64(from[16:])
		four[3] = binary.LittleEndian.Uint64(from[24:])
		rest, packed = rest[4:], packed[32:]
	}
	for i := range rest {
		rest[i] = binary.LittleEndian.Uint64(packed[8*i:])
	}
	return digests
}

func (t *Tiles) validate() error {
	if err := limited(tilesSchema, "tiles", int64(len(t.Digests)), MaxTiles); err != nil {
		return err
	}
	return ascending(bareSchema, "bare", t.Bare)
}

// ascending refuses a list of sources that names one twice, or is not in their order.
func ascending(schema, field string, sources []uint32) error {
	for i := 1; i < len(sources); i++ {
		if sources[i] <= sources[i-1] {
			return malformed(schema, field, "indices do not ascend at %d", i)
		}
	}
	return nil
}

func checkText(schema, field, s string, most int) error {
	if err := limited(schema, field+" bytes", int64(len(s)), int64(most)); err != nil {
		return err
	}
	if !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\r\n") {
		return malformed(schema, field, "%.64q is not one line of UTF-8", s)
	}
	return nil
}

func checkWorld(schema string, key Key, world int) error {
	if key.IsZero() {
		return malformed(schema, "run", "runs count from 1")
	}
	if world < 1 || world > MaxWorld {
		return limited(schema, "world", int64(uint(world)), MaxWorld)
	}
	return nil
}

// wireRef is a Ref as it travels.
type wireRef struct {
	Run      uint64 `msgpack:"run"`
	Version  uint64 `msgpack:"version"`
	Manifest []byte `msgpack:"manifest"` // 32 bytes
}

func refOut(r *Ref) *wireRef {
	if r == nil {
		return nil
	}
	return &wireRef{Run: r.Key.Run, Version: r.Key.Version, Manifest: r.Manifest[:]}
}

func refIn(schema string, w *wireRef) (*Ref, error) {
	if w == nil {
		return nil, nil
	}
	r := &Ref{Key: Key{Run: w.Run, Version: w.Version}}
	if len(w.Manifest) != len(r.Manifest) {
		return nil, malformed(schema, "base", "manifest digest of %d bytes, want %d", len(w.Manifest), len(r.Manifest))
	}
	copy(r.Manifest[:], w.Manifest)
	return r, nil
}

// checkBase: a partial version stands on one exact version that is older.
func checkBase(schema string, base *Ref, key Key) error {
	if base == nil {
		return nil
	}
	if base.Key.IsZero() || base.Manifest.IsZero() || !base.Key.Less(key) {
		return malformed(schema, "base", "is %s, want a version before %s and its manifest's digest", base, key)
	}
	return nil
}

func keyOut(k *Key) *wireKey {
	if k == nil {
		return nil
	}
	return &wireKey{Run: k.Run, Version: k.Version}
}

// clampInt keeps a number from the wire positive; what does not fit fails its limit.
func clampInt(n uint64) int { return int(min(n, math.MaxInt32)) }
