package messages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Headers that the server reads.
const (
	hdrExpectSeq     = "Nats-Expected-Last-Subject-Sequence"
	hdrExpectSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	hdrTTL           = "Nats-TTL"
	hdrRollup        = "Nats-Rollup"
	hdrMarker        = "Nats-Marker-Reason"
	hdrKVOperation   = "KV-Operation"
	ttlNever         = "never"
)

// Error codes of the JetStream API that have an answer of their own.
const (
	codeWrongLastSequence  = 10071 // the expected sequence is not the last one
	codeStoreFailed        = 10077 // here: the subject is taken (discard new per subject)
	codeInFlight           = 10164 // another write with the same expectation is under way
	codeNotReady           = 10163
	codeStreamNotFound     = 10059
	codeNoMessage          = 10037
	codeStreamOffline      = 10118
	codeClusterNoPeers     = 10005
	codeClusterNotAvail    = 10008
	codeClusterNotLeader   = 10009
	codeInsufficientMemory = 10023
	codeInsufficientStore  = 10047
)

// apiError is the server's answer when it refuses.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%s (%d)", e.Description, e.ErrCode)
}

// transient says whether asking again may help: elections and restarts pass.
func (e *apiError) transient() bool {
	switch e.ErrCode {
	case codeInFlight, codeNotReady, codeStreamOffline, codeClusterNoPeers, codeClusterNotAvail, codeClusterNotLeader:
		return true
	case codeStoreFailed, codeInsufficientMemory, codeInsufficientStore:
		return false
	}
	return e.Code == 503
}

// request makes one attempt, bounded by OpTimeout, and fails at once when the server
// reports a permission violation for subject.
func (c *Control) request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	ctx, done := c.denials.watch(ctx, m.Subject, c.cfg.OpTimeout)
	defer done()
	reply, err := c.nc.RequestMsgWithContext(ctx, m)
	if err == nil {
		return reply, nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, ErrPermission) {
		return nil, cause
	}
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("no response from stream: %w", err)
	}
	return nil, err
}

// store publishes one message and returns its sequence.
func (c *Control) store(ctx context.Context, m *nats.Msg) (uint64, error) {
	reply, err := c.request(ctx, m)
	if err != nil {
		return 0, err
	}
	var ack struct {
		Seq   uint64    `json:"seq"`
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return 0, fmt.Errorf("read the acknowledgement for %s: %w", m.Subject, err)
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	return ack.Seq, nil
}

// api asks the JetStream API and decodes the answer into out.
func (c *Control) api(ctx context.Context, subject string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode request to %s: %w", subject, err)
	}
	reply, err := c.request(ctx, &nats.Msg{Subject: subject, Data: body})
	if err != nil {
		return err
	}
	var failed struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &failed); err != nil {
		return fmt.Errorf("read the answer of %s: %w", subject, err)
	}
	if failed.Error != nil {
		return failed.Error
	}
	return json.Unmarshal(reply.Data, out)
}

// purge removes all messages whose subject matches filter.
func (c *Control) purge(ctx context.Context, filter string) error {
	var ok struct{}
	return c.api(ctx, "$JS.API.STREAM.PURGE."+c.subj.stream(), map[string]string{"filter": filter}, &ok)
}

// purgeUpTo removes what matches filter and has a sequence of at most seq.
func (c *Control) purgeUpTo(ctx context.Context, filter string, seq uint64) error {
	var ok struct{}
	return c.api(ctx, "$JS.API.STREAM.PURGE."+c.subj.stream(), purgeQuery{Filter: filter, Below: seq + 1}, &ok)
}

type purgeQuery struct {
	Filter string `json:"filter"`
	Below  uint64 `json:"seq"`
}

// stored is one message as it was read.
type stored struct {
	Subject string
	Seq     uint64
	Header  nats.Header
	Data    []byte
	Digest  Digest    // of Data
	Time    time.Time // when the server stored it
	Decoded any       // what was made of it when it came: a protocol.Item, a *Tiles or nothing
}

// leaderGet reads one message through the stream's leader; nil when there is none.
func (c *Control) leaderGet(ctx context.Context, stream string, query getQuery) (*stored, error) {
	var out struct {
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	err := c.api(ctx, "$JS.API.STREAM.MSG.GET."+stream, query, &out)
	var refused *apiError
	if errors.As(err, &refused) && refused.ErrCode == codeNoMessage {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := &stored{Subject: out.Message.Subject, Seq: out.Message.Seq, Data: out.Message.Data, Digest: protocol.Sum(out.Message.Data), Time: out.Message.Time}
	if len(out.Message.Header) > 0 {
		if m.Header, err = nats.DecodeHeadersMsg(out.Message.Header); err != nil {
			return nil, fmt.Errorf("read headers of %s: %w", m.Subject, err)
		}
	}
	return m, nil
}

// getQuery asks for a message, or with Multi for the last one of each subject.
type getQuery struct {
	Seq      uint64   `json:"seq,omitempty"`
	LastFor  string   `json:"last_by_subj,omitempty"`
	NextFor  string   `json:"next_by_subj,omitempty"`
	Multi    []string `json:"multi_last,omitempty"`
	Batch    int      `json:"batch,omitempty"`
	MaxBytes int      `json:"max_bytes,omitempty"`
	UpToSeq  uint64   `json:"up_to_seq,omitempty"`
}

// Bounds of one multi_last request. The server refuses to match more than 1024
// subjects, and a client that falls 64 MiB behind is cut off.
const (
	multiSubjects = 1000
	multiBytes    = 24 << 20
)

// multiGet reads the last message of each subject from any replica; wildcards are
// allowed. The answer may be short without saying so: callers know what they want,
// and ask again for what is missing.
func (c *Control) multiGet(ctx context.Context, stream string, subjects []string) ([]*stored, error) {
	return c.batch(ctx, stream, getQuery{Multi: subjects, MaxBytes: multiBytes}, nil)
}

// list reads the last message of each subject that matches filter, from any replica. Few
// come with one request; more than the server lists at once are read page by page, in
// the order of the stream.
func (c *Control) list(ctx context.Context, stream, filter string) ([]*stored, error) {
	msgs, err := c.multiGet(ctx, stream, []string{filter})
	if !errors.Is(err, errTooMany) {
		return msgs, err
	}
	for seq := uint64(1); ; {
		page, err := c.batch(ctx, stream, getQuery{Seq: seq, NextFor: filter, Batch: multiSubjects, MaxBytes: multiBytes}, nil)
		msgs = append(msgs, page...)
		if err != nil || len(page) == 0 {
			return msgs, err
		}
		seq = page[len(page)-1].Seq + 1
	}
}

// errTooMany is the server's refusal to list more than 1024 subjects at once.
var errTooMany = errors.New("direct get: more than 1024 subjects match")

// readAll asks for subjects, all literal, again and again as long as some come.
func (c *Control) readAll(ctx context.Context, stream string, subjects []string) ([]*stored, error) {
	var all []*stored
	for len(subjects) > 0 {
		page := subjects[:min(len(subjects), multiSubjects)]
		got, err := c.multiGet(ctx, stream, page)
		if err != nil {
			return all, err
		}
		all = append(all, got...)
		if len(got) == len(page) {
			subjects = subjects[len(page):]
			continue
		}
		missing := without(page, got)
		if len(got) == 0 {
			// What is left of this page is not there (yet); the rest may be.
			subjects = subjects[len(page):]
			continue
		}
		subjects = append(missing, subjects[len(page):]...)
	}
	return all, nil
}

func without(subjects []string, got []*stored) []string {
	have := make(map[string]bool, len(got))
	for _, m := range got {
		have[m.Subject] = true
	}
	var missing []string
	for _, s := range subjects {
		if !have[s] {
			missing = append(missing, s)
		}
	}
	return missing
}
