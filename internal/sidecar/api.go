package sidecar

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// APIVersion is the version in the paths. Within it only optional fields and codes are added.
const APIVersion = 1

// Limits of one request. What comes from a socket that only one user can open may still be wrong.
const (
	MaxBody    = 64 << 20 // bytes of a request; 70,000 entries take some 12 MB
	MaxEntries = 1 << 18  // of an arena
	MaxArenas  = 64       // of a sidecar
	MaxJob     = 128      // bytes of a job's and a session's name
	MaxWait    = time.Minute
)

// Entry is one box of one tensor that a rank holds.
type Entry struct {
	Name  string     `json:"name"`
	DType string     `json:"dtype"` // as it is served; safetensors' or torch's name
	Shape []int64    `json:"shape"` // of the whole logical tensor, elements
	Box   [][2]int64 `json:"box"`   // [lo, hi) in each dimension of the shape

	// Memory that is read in place only: where the box lies.
	Region uint32  `json:"region,omitempty"`
	Offset int64   `json:"offset,omitempty"` // bytes from the region's base
	Stride []int64 `json:"stride,omitempty"` // elements per dimension; none: row-major packed

	// With digests: the trainer makes none of this tensor, so readers can't verify it. The same in all its entries.
	Undigested bool `json:"undigested,omitempty"`
}

// Group ties tensors together.
type Group struct {
	Kind    string   `json:"kind"` // "alias": the names share the first one's bytes; "atomic": they change together
	Members []string `json:"members"`
}

// Region is memory that another process has registered.
type Region struct {
	Base   uint64 `json:"base"` // address in that process, or on its device
	Nbytes int64  `json:"nbytes"`
	Device string `json:"device,omitempty"` // none: host memory; else such as "cuda:0"
}

// Endpoint is how to reach registered memory: a NIXL agent, as the library's own bindings describe it.
type Endpoint struct {
	Agent    string   `json:"agent"`
	Metadata []byte   `json:"metadata"` // base64 in JSON
	Regions  []Region `json:"regions"`
}

// AttachRequest creates or adopts the arena of a rank.
type AttachRequest struct {
	Model    string    `json:"model"`
	World    int       `json:"world"`
	Job      string    `json:"job"`     // the launch: the same for all its ranks, and for a rank that is started again
	Session  string    `json:"session"` // the client's own, one for each life
	Entries  []Entry   `json:"entries"`
	Groups   []Group   `json:"groups,omitempty"`
	Endpoint *Endpoint `json:"endpoint,omitempty"` // of /v1/external only
	Digests  bool      `json:"digests,omitempty"`  // of /v1/external only: each publish brings tile digests
}

// Block is where a part of an entry belongs.
type Block struct {
	Box    [][2]int64 `json:"box"`    // in the tensor, elements
	Offset int64      `json:"offset"` // bytes into the slot; the block lies packed from there, in row-major order
}

// AttachAnswer tells where to write.
type AttachAnswer struct {
	Rank       int       `json:"rank"`
	Generation int64     `json:"generation"`
	Adopted    bool      `json:"adopted"` // the files were there before this sidecar was
	Nbytes     int64     `json:"nbytes"`  // of each slot
	Slots      []string  `json:"slots,omitempty"`
	Places     [][]Block `json:"places,omitempty"` // for each entry its blocks
	Layout     string    `json:"layout"`           // digest of the layout
	Grids      [][]int64 `json:"grids,omitempty"`  // with digests: the extent of a tile in each dimension, for each entry
	Tiles      int       `json:"tiles,omitempty"`  // with digests: how many tiles the digested entries have together
}

// VersionRequest is about one version of one session's arena. Not all fields matter to all calls.
type VersionRequest struct {
	Session     string `json:"session"`
	Generation  int64  `json:"generation"`
	Version     uint64 `json:"version"`
	Slot        int    `json:"slot,omitempty"`
	Run         uint64 `json:"run,omitempty"` // if given, the run that the client believes to be in
	Traceparent string `json:"traceparent,omitempty"`
	Digests     []byte `json:"digests,omitempty"` // in place only: xxh3-64 of each tile of digested entries, little-endian, base64 in JSON
	WaitMS      int64  `json:"wait_ms,omitempty"` // longest wait for an end of what was asked; at most a minute

	// Of a publish: that all but some tensors are what they were in an earlier version of the run. The slot holds
	// everything all the same, for readers that serve another version.
	Base    *uint64  `json:"base,omitempty"`
	Changed []string `json:"changed,omitempty"` // with base: names of this rank's tensors; none: nothing of it changed
}

// check refuses what contradicts itself.
func (r *VersionRequest) check() error {
	switch {
	case r.Base == nil && len(r.Changed) > 0:
		return refuse(BadRequest, "%d changed tensors, and no base that they changed since", len(r.Changed))
	case r.Base != nil && *r.Base >= r.Version:
		return refuse(BadRequest, "version %d can't stand on version %d: a base is older", r.Version, *r.Base)
	}
	return nil
}

// wait is the bounded wait of a request.
func (r *VersionRequest) wait() time.Duration {
	return min(max(0, time.Duration(min(r.WaitMS, MaxWait.Milliseconds()))*time.Millisecond), MaxWait)
}

// State is where a version is.
type State string

// The states of a version. Those in -ing go on by themselves: ask again.
const (
	Waiting    State = "waiting"    // for the readers of the slot that it needs
	Filling    State = "filling"    // the trainer may write its slot
	Publishing State = "publishing" // being digested, published, and waiting for the other ranks
	Committed  State = "committed"  // receivers read it
	Draining   State = "draining"   // withdrawn; some still read it
	Drained    State = "drained"    // nobody reads it, nobody will
	Failed     State = "failed"
)

// VersionAnswer says where a version is, and who keeps it there.
type VersionAnswer struct {
	Version uint64 `json:"version"`
	State   State  `json:"state"`
	Slot    int    `json:"slot"`
	Run     uint64 `json:"run,omitempty"`
	Slots   []Slot `json:"slots,omitempty"` // while it waits
	Error   *Error `json:"error,omitempty"` // why it failed
	Seconds Took   `json:"seconds"`

	Base *uint64 `json:"base,omitempty"` // of a version that is committed as a difference; none: it is whole
}

// Took is how long the parts of a publication took, in seconds.
type Took struct {
	Wait    float64 `json:"wait"`    // for the slot to be free
	Publish float64 `json:"publish"` // digests, upload and commit
}

// Slot is what one buffer holds.
type Slot struct {
	Slot    int      `json:"slot"`
	Version uint64   `json:"version"`
	Run     uint64   `json:"run"`
	State   string   `json:"state"`             // as in the publisher's status
	Holders []string `json:"holders,omitempty"` // receivers that read it
}

// ArenaStatus is what is known of one rank.
type ArenaStatus struct {
	Rank       int             `json:"rank"`
	World      int             `json:"world"`
	Job        string          `json:"job"`
	Run        uint64          `json:"run,omitempty"` // 0: not joined yet
	External   bool            `json:"external,omitempty"`
	Generation int64           `json:"generation"`
	Nbytes     int64           `json:"nbytes"`
	Trainer    Trainer         `json:"trainer"`
	Closing    bool            `json:"closing,omitempty"`
	Slots      []Slot          `json:"slots,omitempty"`
	Versions   []VersionAnswer `json:"versions,omitempty"`
}

// Trainer is the process that holds an arena.
type Trainer struct {
	PID     int        `json:"pid,omitempty"` // 0: in another container, not visible
	Alive   *bool      `json:"alive,omitempty"`
	Gone    *time.Time `json:"gone,omitempty"` // since when
	Session string     `json:"session"`
}

// Status is what a sidecar says of itself.
type Status struct {
	API     int           `json:"api"`
	Model   string        `json:"model"`
	PID     int           `json:"pid"`
	Host    string        `json:"host"`
	Started time.Time     `json:"started"`
	Arenas  []ArenaStatus `json:"arenas"`
}

// decode reads one JSON value and nothing after it. Fields that the API doesn't have are refused: a misspelt one must not
// fall silently back to a default.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, MaxBody))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		_, err = d.Token()
	}
	var big *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.As(err, &big):
		return refuse(LimitExceeded, "the request is longer than %d bytes", big.Limit)
	case err == nil:
		return refuse(BadRequest, "more than one JSON value")
	}
	return refuse(BadRequest, "read JSON: %v", err)
}

// check refuses what goes beyond limits; layouts have checks of their own.
func (a *AttachRequest) check(rank int) error {
	switch {
	case a.World < 1 || a.World > messages.MaxWorld || rank < 0 || rank >= a.World:
		return refuse(BadRequest, "rank %d of a world of %d: a rank is at least 0 and below the world size, at most %d", rank, a.World, messages.MaxWorld)
	case a.Job == "" || len(a.Job) > MaxJob || a.Session == "" || len(a.Session) > MaxJob:
		return refuse(BadRequest, "job of %d bytes, session of %d: 1 to %d are expected", len(a.Job), len(a.Session), MaxJob)
	case len(a.Entries) > MaxEntries:
		return refuse(LimitExceeded, "%d entries, the limit is %d", len(a.Entries), MaxEntries)
	case len(a.Groups) > messages.MaxGroups:
		return refuse(LimitExceeded, "%d groups, the limit is %d", len(a.Groups), messages.MaxGroups)
	}
	return nil
}
