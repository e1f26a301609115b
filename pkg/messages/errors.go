package messages

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels. Each says what state the caller is left in.
var (
	// ErrMalformed: a payload is not what its schema says. Nothing of it was used.
	ErrMalformed = errors.New("malformed payload")
	// ErrLimit: a payload goes beyond a limit of the wire format. Nothing of it was used.
	ErrLimit = errors.New("limit exceeded")
	// ErrSchema: a payload is of a schema that this reader does not know, e.g. from a
	// newer publisher. It may be perfectly good for somebody else.
	ErrSchema = errors.New("unknown schema")
	// ErrConflict: somebody else's bytes stand where ours should. Theirs stay.
	ErrConflict = errors.New("write-once conflict")
	// ErrFenced: a newer run exists. Nothing was written; this run can't commit any more.
	ErrFenced = errors.New("run is fenced")
	// ErrAbandoned: the version was ended by name before it was complete.
	ErrAbandoned = errors.New("version was abandoned")
	// ErrRetired: the version was committed and has been withdrawn since.
	ErrRetired = errors.New("version was retired")
	// ErrNotCommitted: no manifest of the version exists (yet).
	ErrNotCommitted = errors.New("version is not committed")
	// ErrIncomplete: the deadline passed before all that was waited for was there.
	ErrIncomplete = errors.New("incomplete")
	// ErrContradiction: what a rank published is not what the manifest says. The version
	// must not be read.
	ErrContradiction = errors.New("contradicts the manifest")
	// ErrBase: a partial version can't be staged as a difference here, since another
	// version is served than its base. Nothing was staged; the whole may be, where its
	// layouts hold all that is needed.
	ErrBase = errors.New("not the base of the partial version")
	// ErrLeaseLost: the version's bytes may be overwritten from now on.
	ErrLeaseLost = errors.New("lease lost")
	// ErrHeld: receivers still hold leases on the version. Its commit is withdrawn, its
	// bytes must stay.
	ErrHeld = errors.New("version is still read")
	// ErrConfig: a stream or bucket exists with another configuration. It was left as it is.
	ErrConfig = errors.New("configuration differs")
	// ErrNoStream: the model's stream does not exist, or JetStream is off.
	ErrNoStream = errors.New("no such stream")
	// ErrPermission: the server refused the operation to this user.
	ErrPermission = errors.New("permission denied")
	// ErrUnavailable: the servers gave no answer within the deadline. The operation may
	// or may not have happened; repeating it is safe.
	ErrUnavailable = errors.New("no answer from the servers")
)

// LimitError is an ErrLimit with its circumstances.
type LimitError struct {
	Schema string // of the payload
	Limit  string // which limit
	Have   int64
	Max    int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %s is %d, limit %d", e.Schema, e.Limit, e.Have, e.Max)
}

// Is says that a LimitError is an ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// FormatError is an ErrMalformed, or an ErrSchema, with its circumstances.
type FormatError struct {
	Schema string // what the payload should have been
	Field  string // "" is the payload as a whole
	Reason string
	Kind   error // ErrMalformed or ErrSchema
}

func (e *FormatError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s: %s", e.Schema, e.Reason)
	}
	return fmt.Sprintf("%s: field %q: %s", e.Schema, e.Field, e.Reason)
}

// Unwrap returns the sentinel.
func (e *FormatError) Unwrap() error { return e.Kind }

// RankError tells which ranks of a version an error is about.
type RankError struct {
	Op    string // what was tried
	Key   Key
	Ranks []int // in order, as many as are known
	Err   error
}

func (e *RankError) Error() string {
	noun := "ranks"
	if len(e.Ranks) == 1 {
		noun = "rank"
	}
	return fmt.Sprintf("%s version %s: %v: %s %s", e.Op, e.Key, e.Err, noun, rankList(e.Ranks))
}

// Unwrap returns the cause.
func (e *RankError) Unwrap() error { return e.Err }

// rankList draws ranks in runs, so that "all but one of 1000" stays readable.
func rankList(ranks []int) string {
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		if j > i {
			parts = append(parts, fmt.Sprintf("%d-%d", ranks[i], ranks[j]))
		} else {
			parts = append(parts, fmt.Sprint(ranks[i]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
