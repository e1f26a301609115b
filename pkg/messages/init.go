package messages

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Init creates the model's stream and buckets. What exists already with the wanted
// configuration is left alone; with another one, Init changes nothing and returns
// ErrConfig with each difference.
func Init(ctx context.Context, nc *nats.Conn, cfg Config) error {
	return administer(ctx, nc, cfg, "initialise", func(ctx context.Context, js jetstream.JetStream, cfg Config) error {
		return persist(ctx, func(ctx context.Context) error { return initialise(ctx, js, cfg.streams()) })
	})
}

// administer runs work on a model's streams within the configuration's deadline; verb says in errors what it does.
func administer(ctx context.Context, nc *nats.Conn, cfg Config, verb string, work func(context.Context, jetstream.JetStream, Config) error) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	var refusals denials
	defer refusals.listen(nc)()
	ctx, done := refusals.watch(ctx, "$JS.API.>", cfg.Deadline)
	defer done()
	js, err := jetstream.New(nc)
	if err == nil {
		err = work(ctx, js, cfg)
	}
	if cause := context.Cause(ctx); errors.Is(cause, ErrPermission) {
		err = cause // what it ended with says no more than that it was ended
	}
	if err != nil {
		return fmt.Errorf("%s model %q: %w", verb, cfg.Model, err)
	}
	return nil
}

// initialise makes one attempt. It looks at everything before anything is made: no
// partial state when one stream differs.
func initialise(ctx context.Context, js jetstream.JetStream, wanted []jetstream.StreamConfig) error {
	missing := make([]bool, len(wanted))
	var err error
	for i, want := range wanted {
		if missing[i], err = checkStream(ctx, js, want); err != nil {
			return err
		}
	}
	for i, want := range wanted {
		if !missing[i] {
			continue
		}
		if err := createStream(ctx, js, want); err != nil {
			return err
		}
	}
	return nil
}

// A request to a leader that has just died is never answered, so each is made again after
// a while: a look soon, a creation later, since placing replicas takes a second or two.
const (
	initAttempt = 5 * time.Second
	lookAttempt = time.Second
)

// persist repeats what fails for want of an answer, until ctx ends.
func persist(ctx context.Context, attempt func(context.Context) error) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, initAttempt)
		err := attempt(bounded)
		cancel()
		if err == nil || !errors.Is(err, ErrUnavailable) {
			return err
		}
		pause(ctx, retryDelay)
		if ctx.Err() != nil {
			return err
		}
	}
}

// streams are the configurations of the model's stream and of the streams under its
// buckets, as nats.go would make the buckets.
func (cfg Config) streams() []jetstream.StreamConfig {
	s := subjects{cfg.Token}
	storage := jetstream.FileStorage
	if cfg.Memory {
		storage = jetstream.MemoryStorage
	}
	bucket := func(name string) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"},
			Storage: storage, Replicas: cfg.Replicas, MaxBytes: 64 << 20, MaxMsgSize: MaxPayload,
			MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true,
			AllowDirect: true, AllowMsgTTL: true, SubjectDeleteMarkerTTL: time.Minute, Duplicates: 2 * time.Minute,
			MaxMsgs: -1, MaxConsumers: -1,
		}
	}
	return []jetstream.StreamConfig{{
		Name: s.stream(), Subjects: []string{s.all()}, Description: "Drydock versions of " + cfg.Model,
		Retention: jetstream.LimitsPolicy, Storage: storage, Replicas: cfg.Replicas,
		AllowDirect: true, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
		MaxBytes: cfg.MaxBytes, MaxMsgSize: MaxPayload, MaxAge: cfg.MaxAge, Duplicates: 100 * time.Millisecond,
		DenyDelete: true, AllowMsgTTL: true, MaxMsgs: -1, MaxConsumers: -1,
		RePublish: &jetstream.RePublish{
			Source: s.root() + "c.>", Destination: s.notifyAll(), HeadersOnly: true,
		},
	}, bucket(s.leaseBucket()), bucket(s.statusBucket())}
}

// checkStream compares an existing stream with the wanted one. It says whether the
// stream is missing.
func checkStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (bool, error) {
	bounded, cancel := context.WithTimeout(ctx, lookAttempt)
	defer cancel()
	st, err := js.Stream(bounded, want.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("look at stream %s: %w", want.Name, explainJS(err))
	}
	if diff := diffStream(st.CachedInfo().Config, want); len(diff) > 0 {
		return false, fmt.Errorf("stream %s exists: %w: %s", want.Name, ErrConfig, strings.Join(diff, "; "))
	}
	return false, nil
}

func createStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	_, err := js.CreateStream(ctx, want)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		// Made by somebody else since we looked.
		_, err = checkStream(ctx, js, want)
		return err
	}
	if err != nil {
		return fmt.Errorf("create stream %s: %w", want.Name, explainJS(err))
	}
	return nil
}

// diffStream lists the fields that matter and differ, as "field is X, want Y".
func diffStream(have, want jetstream.StreamConfig) []string {
	var diff []string
	for _, f := range []struct {
		name       string
		have, want any
	}{
		{"subjects", fmt.Sprint(have.Subjects), fmt.Sprint(want.Subjects)},
		{"retention", have.Retention, want.Retention},
		{"storage", have.Storage, want.Storage},
		{"replicas", have.Replicas, want.Replicas},
		{"discard", have.Discard, want.Discard},
		{"discard new per subject", have.DiscardNewPerSubject, want.DiscardNewPerSubject},
		{"max messages per subject", have.MaxMsgsPerSubject, want.MaxMsgsPerSubject},
		{"max messages", have.MaxMsgs, want.MaxMsgs},
		{"max bytes", have.MaxBytes, want.MaxBytes},
		{"max message size", have.MaxMsgSize, want.MaxMsgSize},
		{"max age", have.MaxAge, want.MaxAge},
		{"duplicate window", have.Duplicates, want.Duplicates},
		{"allow direct", have.AllowDirect, want.AllowDirect},
		{"allow rollup", have.AllowRollup, want.AllowRollup},
		{"allow message TTL", have.AllowMsgTTL, want.AllowMsgTTL},
		{"delete marker TTL", have.SubjectDeleteMarkerTTL, want.SubjectDeleteMarkerTTL},
		{"deny delete", have.DenyDelete, want.DenyDelete},
		{"deny purge", have.DenyPurge, want.DenyPurge},
		{"sealed", have.Sealed, want.Sealed},
		{"no ack", have.NoAck, want.NoAck},
		{"mirror", have.Mirror != nil, want.Mirror != nil},
		{"sources", len(have.Sources), len(want.Sources)},
		{"subject transform", have.SubjectTransform != nil, want.SubjectTransform != nil},
		{"republish", drawRePublish(have.RePublish), drawRePublish(want.RePublish)},
	} {
		if f.have != f.want {
			diff = append(diff, fmt.Sprintf("%s is %v, want %v", f.name, f.have, f.want))
		}
	}
	return diff
}

func drawRePublish(r *jetstream.RePublish) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("%s to %s, headers only %v", r.Source, r.Destination, r.HeadersOnly)
}

// explainJS adds what to do to the errors that users meet first.
func explainJS(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: JetStream is off: start nats-server with -js, or enable it for this account (%w)", ErrNoStream, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && (int(api.ErrorCode) == codeInsufficientStore || int(api.ErrorCode) == codeInsufficientMemory) {
		return fmt.Errorf("the server has no room for what MaxBytes reserves: lower it, or raise the server's limit: %w", err)
	}
	if errors.As(err, &api) && (&apiError{Code: api.Code, ErrCode: int(api.ErrorCode)}).transient() {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
