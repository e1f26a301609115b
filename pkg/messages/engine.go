package messages

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// Receivers that feed one inference engine from several hosts must install a version together or not at all. What they
// agree on stands in one record for each engine, in the status bucket. It is changed only by compare-and-set and read
// only through the leader, so that all of them see one history, and whoever decides first decides for all. This package
// keeps the record; what it means, and who may change it to what, is the receivers' business (pkg/refit).

// EngineRecord is where the receivers of one engine stand.
type EngineRecord struct {
	Engine  string // name, [A-Za-z0-9_-]{1,64}
	Size    int    // receivers that feed it
	Attempt uint64 // counts the rounds of agreeing, from 1; 0: there was none
	Key     Key    // the version that this round is about
	Back    bool   // it goes backwards, by an operator's order
	Phase   EnginePhase
	Members []EngineMember // that have staged it, by name

	// Of an aborted round.
	By     string // the receiver that ended it
	Reason string // in its words
	Final  bool   // another round about this version would end the same way

	Served        Key      // the version that was committed last; zero: none
	ServedAttempt uint64   // by which round
	Roster        []string // names of those who took part when it was last complete
}

// EnginePhase is how far a round has come.
type EnginePhase string

// The phases, in order; a round ends committed or aborted.
const (
	EngineGathering  EnginePhase = "gathering"  // members come in, each with the version staged
	EngineInstalling EnginePhase = "installing" // all are there
	EngineCommitted  EnginePhase = "committed"  // every member's installation said yes
	EngineAborted    EnginePhase = "aborted"    // all stay on the old version, or return to it
)

// EngineMember is one receiver of the engine.
type EngineMember struct {
	Name      string
	Host      string
	Life      string // of the process, drawn when it starts: two receivers of one name are told from one that was restarted; "": not told
	Ranks     []int
	Files     []string // of the version, on its own host, in the order of Ranks
	Installed bool     // its installer said yes
}

const engineSchema = "drydock.engine.v1"

type wireEngine struct {
	Schema  string             `msgpack:"schema"`
	Engine  string             `msgpack:"engine"`
	Size    uint64             `msgpack:"size"`
	Attempt uint64             `msgpack:"attempt"`
	Key     *wireKey           `msgpack:"key,omitempty"`
	Back    bool               `msgpack:"back,omitempty"`
	Phase   string             `msgpack:"phase"`
	Members []wireEngineMember `msgpack:"members,omitempty"`
	By      string             `msgpack:"by,omitempty"`
	Reason  string             `msgpack:"reason,omitempty"`
	Final   bool               `msgpack:"final,omitempty"`
	Served  *wireKey           `msgpack:"served,omitempty"`
	ServedN uint64             `msgpack:"served_attempt,omitempty"`
	Roster  []string           `msgpack:"roster,omitempty"`
}

type wireEngineMember struct {
	Name      string   `msgpack:"name"`
	Host      string   `msgpack:"host"`
	Life      string   `msgpack:"life,omitempty"`
	Ranks     []uint64 `msgpack:"ranks"`
	Files     []string `msgpack:"files"`
	Installed bool     `msgpack:"installed,omitempty"`
}

// MaxMembers bounds the receivers of one engine, and the ranks of each.
const MaxMembers = 256

// EncodeEngine writes a record.
func EncodeEngine(r *EngineRecord) ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	w := wireEngine{
		Schema: engineSchema, Engine: r.Engine, Size: uint64(r.Size), Attempt: r.Attempt, Key: keyOrNil(r.Key), Back: r.Back,
		Phase: string(r.Phase), By: r.By, Reason: cut(r.Reason), Final: r.Final, Served: keyOrNil(r.Served), ServedN: r.ServedAttempt,
		Roster: r.Roster,
	}
	for i := range r.Members {
		m := &r.Members[i]
		member := wireEngineMember{Name: m.Name, Host: cut(m.Host), Life: m.Life, Ranks: []uint64{}, Files: m.Files, Installed: m.Installed}
		for _, rank := range m.Ranks {
			member.Ranks = append(member.Ranks, uint64(max(rank, 0)))
		}
		w.Members = append(w.Members, member)
	}
	out, err := pack(&w)
	if err != nil {
		return nil, err
	}
	return squeeze(out)
}

// DecodeEngine reads a record.
func DecodeEngine(b []byte) (*EngineRecord, error) {
	var w wireEngine
	if err := unpack(engineSchema, b, &w); err != nil {
		return nil, err
	}
	if err := checkSchema(engineSchema, w.Schema); err != nil {
		return nil, err
	}
	r := &EngineRecord{
		Engine: w.Engine, Size: clampInt(w.Size), Attempt: w.Attempt, Key: keyOrZero(w.Key), Back: w.Back, Phase: EnginePhase(w.Phase),
		By: w.By, Reason: w.Reason, Final: w.Final, Served: keyOrZero(w.Served), ServedAttempt: w.ServedN, Roster: w.Roster,
	}
	for _, m := range w.Members {
		member := EngineMember{Name: m.Name, Host: m.Host, Life: m.Life, Files: m.Files, Installed: m.Installed}
		for _, rank := range m.Ranks {
			member.Ranks = append(member.Ranks, clampInt(rank))
		}
		r.Members = append(r.Members, member)
	}
	return r, r.validate()
}

func (r *EngineRecord) validate() error {
	if !isToken(r.Engine) {
		return malformed(engineSchema, "engine", "%.80q is not a name of 1 to 64 of A-Z a-z 0-9 _ -", r.Engine)
	}
	switch r.Phase {
	case EngineGathering, EngineInstalling, EngineCommitted, EngineAborted:
	default:
		return malformed(engineSchema, "phase", "is %.40q", string(r.Phase))
	}
	if r.Size < 1 {
		return malformed(engineSchema, "size", "is %d", r.Size)
	}
	for what, n := range map[string]int{"size": r.Size, "members": len(r.Members), "roster": len(r.Roster)} {
		if err := limited(engineSchema, what, int64(n), MaxMembers); err != nil {
			return err
		}
	}
	for i := range r.Members {
		if err := r.Members[i].validate(); err != nil {
			return err
		}
	}
	return nil
}

func (m *EngineMember) validate() error {
	if !isToken(m.Name) {
		return malformed(engineSchema, "members", "%.80q is not a receiver's name", m.Name)
	}
	if m.Life != "" && !isToken(m.Life) {
		return malformed(engineSchema, "members", "%s has the life %.80q", m.Name, m.Life)
	}
	if len(m.Ranks) != len(m.Files) {
		return malformed(engineSchema, "members", "%s has %d ranks and %d files", m.Name, len(m.Ranks), len(m.Files))
	}
	return limited(engineSchema, "ranks of "+m.Name, int64(len(m.Ranks)), MaxMembers)
}

// Engine reads the record of an engine through the leader, and the sequence to change it by. An engine without one has
// a record of attempt 0 and sequence 0.
func (c *Control) Engine(ctx context.Context, engine string) (*EngineRecord, uint64, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	for {
		m, err := c.leaderGet(ctx, "KV_"+c.subj.statusBucket(), getQuery{LastFor: c.subj.engine(engine)})
		switch {
		case err == nil && (m == nil || m.Header.Get(hdrMarker) != "" || m.Header.Get(hdrKVOperation) != ""):
			seq := uint64(0)
			if m != nil {
				seq = m.Seq
			}
			return &EngineRecord{Engine: engine}, seq, nil
		case err == nil:
			r, err := DecodeEngine(m.Data)
			if err != nil {
				return nil, 0, fmt.Errorf("read the record of engine %q: %w", engine, err)
			}
			return r, m.Seq, nil
		case errors.Is(err, ErrPermission), ctx.Err() != nil:
			return nil, 0, fmt.Errorf("read the record of engine %q: %w", engine, unavailable(err))
		}
		pause(ctx, retryDelay)
	}
}

// PutEngine changes the record of an engine that still stands at seq. Errors: ErrConflict, when somebody else has changed
// it, and theirs stands; ErrUnavailable, when it may or may not have been changed. Read it again in both cases.
func (c *Control) PutEngine(ctx context.Context, r *EngineRecord, seq uint64) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	body, err := EncodeEngine(r)
	if err != nil {
		return fmt.Errorf("change the record of engine %q: %w", r.Engine, err)
	}
	m := &nats.Msg{Subject: c.subj.engine(r.Engine), Data: body, Header: nats.Header{}}
	m.Header.Set(hdrExpectSeq, strconv.FormatUint(seq, 10))
	_, err = c.store(ctx, m)
	var refused *apiError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && refused.ErrCode == codeWrongLastSequence:
		return fmt.Errorf("change the record of engine %q: %w: it has changed since", r.Engine, ErrConflict)
	}
	return fmt.Errorf("change the record of engine %q: %w", r.Engine, unavailable(err))
}

// unavailable marks what got no answer, and what may be better the next time.
func unavailable(err error) error {
	var refused *apiError
	if errors.Is(err, ErrPermission) || errors.As(err, &refused) && !refused.transient() {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// EngineChanges wakes whoever receives from the channel when an engine's record may have changed, and every now and then
// besides, until ctx ends. Wake-ups that nobody takes are merged.
func (c *Control) EngineChanges(ctx context.Context, engine string) (<-chan struct{}, error) {
	// The bucket's writes are plain messages on this subject; refused ones wake too, which does no harm.
	sub, err := c.nc.SubscribeSync(c.subj.engine(engine))
	if err != nil {
		return nil, fmt.Errorf("watch engine %q: %w", engine, err)
	}
	wake := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.background, cancel)
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		defer stop()
		defer cancel()
		defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is gone
		for ctx.Err() == nil {
			bounded, done := context.WithTimeout(ctx, enginePoll)
			_, _ = sub.NextMsgWithContext(bounded) // whatever came, or nothing: look
			done()
			if !sub.IsValid() { // the connection is closed, or listening is not allowed
				pause(ctx, enginePoll)
			}
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	}()
	return wake, nil
}

// enginePoll is how often a record is read again without being woken: the wake-up may have been lost.
const enginePoll = 250 * time.Millisecond
