package messages

import (
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Config says which model a Control serves, and how. The zero value of every field
// but Model is the default.
type Config struct {
	Model  string               // full name, free text of at most MaxName bytes
	Token  string               // subject token, [A-Za-z0-9_-]{1,64}; Token(Model)
	Host   string               // written into leases
	Logger *slog.Logger         // nil: silent
	Tracer trace.TracerProvider // nil: no messaging spans

	// Of the stream and the buckets. Init creates them so; Open does not look.
	Replicas int           // 1 or 3; 1
	Memory   bool          // keep streams in memory, for demo and tests
	MaxBytes int64         // of the stream; 2 GiB, in memory 256 MiB
	MaxAge   time.Duration // backstop for tables that nobody commits; 7 days

	LeaseTTL  time.Duration // at least 1 s, the server's resolution; 20 s
	StatusTTL time.Duration // at least 1 s; 60 s
	EndTTL    time.Duration // how long the end of a version bars its commit; 120 s
	Poll      time.Duration // how often Watch reads again without being woken; 3 s
	OpTimeout time.Duration // of one attempt against the server; 1 s
	Deadline  time.Duration // of all attempts of one operation; 30 s
}

// withDefaults fills what is zero and refuses what can't work.
func (cfg Config) withDefaults() (Config, error) {
	cfg.Token = orDefault(cfg.Token, Token(cfg.Model))
	cfg.Logger = orDiscard(cfg.Logger)
	cfg.Replicas = orDefault(cfg.Replicas, 1)
	cfg.MaxBytes = orDefault(cfg.MaxBytes, cfg.defaultMaxBytes())
	cfg.MaxAge = orDefault(cfg.MaxAge, 7*24*time.Hour)
	cfg.LeaseTTL = orDefault(cfg.LeaseTTL, 20*time.Second)
	cfg.StatusTTL = orDefault(cfg.StatusTTL, time.Minute)
	cfg.EndTTL = orDefault(cfg.EndTTL, 2*time.Minute)
	cfg.Poll = orDefault(cfg.Poll, 3*time.Second)
	cfg.OpTimeout = orDefault(cfg.OpTimeout, time.Second)
	cfg.Deadline = orDefault(cfg.Deadline, 30*time.Second)
	return cfg, cfg.validate()
}

func (cfg Config) defaultMaxBytes() int64 {
	if cfg.Memory {
		return 256 << 20
	}
	return 2 << 30
}

func (cfg Config) validate() error {
	if err := checkText("configuration", "Model", cfg.Model, MaxName); err != nil {
		return err
	}
	if !isToken(cfg.Token) {
		return fmt.Errorf("configuration: model token %q: want 1 to 64 of A-Z a-z 0-9 _ -", cfg.Token)
	}
	if cfg.Replicas != 1 && cfg.Replicas != 3 && cfg.Replicas != 5 {
		return fmt.Errorf("configuration: %d replicas: want 1, 3 or 5", cfg.Replicas)
	}
	for name, d := range map[string]time.Duration{"LeaseTTL": cfg.LeaseTTL, "StatusTTL": cfg.StatusTTL, "EndTTL": cfg.EndTTL} {
		if d < time.Second || d > maxTTL || d%time.Second != 0 {
			return fmt.Errorf("configuration: %s is %v: want whole seconds from 1 s to %v", name, d, maxTTL)
		}
	}
	if cfg.OpTimeout <= 0 || cfg.Deadline < cfg.OpTimeout || cfg.Poll <= 0 || cfg.MaxBytes < MaxPayload {
		return fmt.Errorf("configuration: Poll %v, OpTimeout %v, Deadline %v, MaxBytes %d can't work", cfg.Poll, cfg.OpTimeout, cfg.Deadline, cfg.MaxBytes)
	}
	return nil
}
