package vllm

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/drydock-rl/drydock/pkg/refit/install/internal/rest"
)

// Drain is what happens to requests that run when a version is installed.
type Drain string

// The policies, as vLLM's /pause names them.
const (
	Wait  Drain = "wait"  // they run to their end first, with the old weights
	Keep  Drain = "keep"  // they are frozen, and go on with the new weights: their caches are computed again
	Abort Drain = "abort" // they end at once, with what they have
)

// Config says which server to update, and how. Only URL is needed.
type Config struct {
	URL      string // of the server: http://127.0.0.1:8000
	APIKey   string // bearer token, where the server asks for one; default none
	Owner    string // who updates; one at a time for an engine, and the same after a restart. Default "drydock"
	TakeOver bool   // take the engine from another owner
	Root     string // the workers open only files below it; default: the folder in which the slots of the first version lie
	Drain    Drain  // default Wait

	CallTimeout    time.Duration // of a call that does little; default 30 s
	DrainTimeout   time.Duration // of the pause, running requests included; default 1 min
	ApplyTimeout   time.Duration // of finish, which copies all weights; default 2 min
	ContactTimeout time.Duration // of the first question, which makes a server look at its environment; default 1 min
	SettleTimeout  time.Duration // of all that follows a failure, the caller's context having ended or not; default 15 s

	Client *http.Client // default: one of its own, without a timeout of its own
	Logger *slog.Logger // default none
}

func (c *Config) validate() error {
	base, err := rest.Base(c.URL)
	if err != nil {
		return err
	}
	c.URL = base
	err = rest.Timeouts(
		rest.Timeout{Value: &c.CallTimeout, Standard: 30 * time.Second},
		rest.Timeout{Value: &c.DrainTimeout, Standard: time.Minute},
		rest.Timeout{Value: &c.ApplyTimeout, Standard: 2 * time.Minute},
		rest.Timeout{Value: &c.ContactTimeout, Standard: time.Minute},
		rest.Timeout{Value: &c.SettleTimeout, Standard: 15 * time.Second},
	)
	if err != nil {
		return err
	}
	return c.setDefaults()
}

func (c *Config) setDefaults() error {
	if c.Drain == "" {
		c.Drain = Wait
	}
	if c.Drain != Wait && c.Drain != Keep && c.Drain != Abort {
		return fmt.Errorf("drain %q: expected %s, %s or %s", c.Drain, Wait, Keep, Abort)
	}
	if c.Owner == "" {
		c.Owner = "drydock"
	}
	if c.Client == nil {
		c.Client = &http.Client{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Installer is a refit.Installer for one vLLM server, whatever its tensor-parallel size. One installation runs at a time.
type Installer struct {
	cfg    Config
	server rest.Server
	nonce  string        // prefix of this installer's nonces
	token  chan struct{} // holds one while an installation runs

	calls   uint64 // to workers so far
	trusted bool   // /server_info has shown the back end, and no connection has failed since
}

// New checks the configuration. It asks the server nothing.
func New(cfg Config) (*Installer, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("make vLLM installer: %w", err)
	}
	server := rest.Server{URL: cfg.URL, APIKey: cfg.APIKey, Client: cfg.Client}
	return &Installer{cfg: cfg, server: server, nonce: rand.Text()[:8], token: make(chan struct{}, 1)}, nil
}
