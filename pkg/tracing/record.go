package tracing

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// RecordPrefix begins the line that carries a record.
const RecordPrefix = "MX_REFIT_TIMING"

// Status says what is known of a stage.
type Status string

// The statuses of a stage. OK, Error and Mixed mean that it was measured.
const (
	StatusOK            Status = "ok"             // every span of it succeeded
	StatusError         Status = "error"          // every span of it failed
	StatusMixed         Status = "mixed"          // spans of it ended differently: see Statuses
	StatusNotApplicable Status = "not_applicable" // this path has no such work
	StatusCombined      Status = "combined"       // its time lies in another stage, named in the metadata
	StatusNotRecorded   Status = "not_recorded"   // nobody said anything about it
)

// Outcome says how a cycle ended.
type Outcome string

// The outcomes of a cycle.
const (
	OutcomeApplied    Outcome = "applied"    // the engine serves the version
	OutcomeFailed     Outcome = "failed"     // an error ended it; the old version serves
	OutcomeReleased   Outcome = "released"   // staged, and given back without being applied
	OutcomeSuperseded Outcome = "superseded" // a newer version made it pointless
	OutcomeAbandoned  Outcome = "abandoned"  // the caller left without saying how (a panic, a return)
)

// Record is what a finished cycle says: the body of the MX_REFIT_TIMING line.
// Field names, their order and units are those that harnesses of the reference
// implementation parse; what only Drydock knows is under the last key.
type Record struct {
	Backend        string    `json:"backend"`
	Version        uint64    `json:"version"`
	Rank           *int      `json:"rank"`
	TPRank         *int      `json:"tp_rank"`
	TPSize         *int      `json:"tp_size"`
	EPRank         *int      `json:"ep_rank"`
	EPSize         *int      `json:"ep_size"`
	Bytes          int64     `json:"bytes"`     // read over the wire
	ColdWarm       string    `json:"cold_warm"` // cold, warm or unknown
	Stages         StageList `json:"stages"`
	E2EMs          Millis    `json:"e2e_ms"`
	UnattributedMs Millis    `json:"unattributed_ms"`
	Drydock        Extension `json:"drydock"`
}

// Extension holds the fields that the reference's record does not have.
type Extension struct {
	Model     string   `json:"model,omitempty"`
	Run       uint64   `json:"run"`
	Outcome   Outcome  `json:"outcome"`
	Error     string   `json:"error,omitempty"`
	ErrorType string   `json:"error_type,omitempty"` // class of the error, a short word
	Faults    []string `json:"faults,omitempty"`     // misuse of the recorder
	PauseMs   Millis   `json:"pause_ms"`             // between phases: the caller's own time
	TraceID   string   `json:"trace_id,omitempty"`
	SpanID    string   `json:"span_id,omitempty"`
	Sizes
}

// Sizes are the byte counts of one cycle. Amplification is WireBytes over
// NeededBytes.
type Sizes struct {
	NeededBytes    int64 `json:"needed_bytes"`    // destination bytes that the plan makes from sources
	WireBytes      int64 `json:"wire_bytes"`      // bytes that crossed a transport; taken from wire_transfer when 0
	VerifiedBytes  int64 `json:"verified_bytes"`  // bytes whose tile digest was checked
	SavedBytes     int64 `json:"saved_bytes"`     // bytes not read, since equal tiles were already here
	StagedBytes    int64 `json:"staged_bytes"`    // bytes staged in all; the divisor of the verified ratio
	InstalledBytes int64 `json:"installed_bytes"` // bytes handed to the engine
}

// Millis is a duration in milliseconds, written with at least one and at most
// three decimals.
type Millis float64

// ToMillis rounds d to microseconds.
func ToMillis(d time.Duration) Millis {
	return Millis(float64(d.Round(time.Microsecond).Microseconds()) / 1000)
}

// MarshalJSON always writes a fraction: readers that check for a float see one.
func (m Millis) MarshalJSON() ([]byte, error) {
	b := strconv.AppendFloat(nil, float64(m), 'f', 3, 64)
	for b[len(b)-1] == '0' && b[len(b)-2] != '.' {
		b = b[:len(b)-1]
	}
	return b, nil
}

// StageRecord is one stage of a record.
type StageRecord struct {
	Status     Status         `json:"status"`
	DurationMs Millis         `json:"duration_ms"` // wall time: the union of its spans
	Count      int            `json:"count"`       // spans and added durations
	Statuses   []Status       `json:"statuses,omitempty"`
	Metadata   map[string]any `json:"metadata,omitempty"`
}

// StageList holds all stages, by Stage-1. In JSON it is an object in stage order.
type StageList [nstages]StageRecord

// Get returns the record of s, which must be a stage.
func (l StageList) Get(s Stage) StageRecord { return l[s-1] }

// MarshalJSON writes the stages in order, which a map would not keep.
func (l StageList) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, sr := range l {
		b, err := json.Marshal(sr)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(strconv.AppendQuote(out, stageNames[i]), ':')
		out = append(out, b...)
	}
	return append(out, '}'), nil
}

// UnmarshalJSON refuses stages that do not exist.
func (l *StageList) UnmarshalJSON(b []byte) error {
	var m map[string]StageRecord
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	for name, sr := range m {
		s, err := ParseStage(name)
		if err != nil {
			return err
		}
		l[s-1] = sr
	}
	return nil
}

// Line returns the record as it is emitted, without a newline.
func (r *Record) Line() (string, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	return RecordPrefix + " " + string(b), nil
}

// ParseLine reads a line made by [Record.Line], or by the reference: text before
// the prefix (a logger's) is skipped.
func ParseLine(line string) (Record, error) {
	_, body, ok := strings.Cut(line, RecordPrefix+" ")
	if !ok {
		return Record{}, fmt.Errorf("parse refit record: no %q in the line", RecordPrefix)
	}
	var r Record
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return Record{}, fmt.Errorf("parse refit record: %w", err)
	}
	return r, nil
}
