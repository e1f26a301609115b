package messages

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

// DialConfig says how to reach the NATS servers. Zero is a plain connection.
type DialConfig struct {
	Name        string        // shown by the server's monitoring; "drydock"
	TLS         *tls.Config   // nil: none unless the URL says tls://
	CredsFile   string        // JWT and nkey seed file
	NKeyFile    string        // nkey seed file
	InboxPrefix string        // "_INBOX"; the permission template gives each role its own
	Timeout     time.Duration // until a server has answered, of the first connection; 5 s
	Retry       bool          // keep trying when no server answers the first attempt
	Logger      *slog.Logger  // nil: silent
}

// Dial connects to url, a comma-separated list of servers, with the settings that the
// control plane needs: it reconnects for ever, never buffers what it could not send
// (a publish that surfaces seconds later would be a surprise), and notices a frozen
// server within seconds.
func Dial(url string, cfg DialConfig) (*nats.Conn, error) {
	opts, err := cfg.options()
	if err != nil {
		return nil, err
	}
	for began := time.Now(); ; {
		nc, err := nats.Connect(url, opts...)
		if err == nil {
			return nc, nil
		}
		// Servers are asked in any order: one that was silent may have been the first of
		// several, or only slow.
		if !isTimeout(err) || time.Since(began) >= cfg.timeout() {
			return nil, fmt.Errorf("connect to NATS at %s: %w", url, err)
		}
	}
}

// dialAttempt is how long one server is given to answer, whenever it is dialled. A frozen
// one accepts connections, its kernel does, and never says a word: whoever waits longer
// than an election takes for its sake misses what the others have agreed upon meanwhile.
const dialAttempt = 2 * time.Second

// Servers are pinged each second, and given up when they owe three answers: a frozen one
// is noticed within 3 s, before the others have elected a leader in its place.
const (
	pingInterval = time.Second
	pingsOwed    = 2
)

func (cfg DialConfig) timeout() time.Duration { return orDefault(cfg.Timeout, 5*time.Second) }

func isTimeout(err error) bool {
	var slow net.Error
	return errors.Is(err, nats.ErrTimeout) || errors.As(err, &slow) && slow.Timeout()
}

func (cfg DialConfig) options() ([]nats.Option, error) {
	log := orDiscard(cfg.Logger)
	opts := []nats.Option{
		nats.Name(orDefault(cfg.Name, "drydock")),
		nats.Timeout(min(cfg.timeout(), dialAttempt)),
		nats.RetryOnFailedConnect(cfg.Retry),
		nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 500*time.Millisecond),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(pingsOwed),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("lost the NATS connection", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("NATS connection is back", "server", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("NATS reports an error", "error", err)
		}),
	}
	if cfg.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(cfg.InboxPrefix))
	}
	if cfg.TLS != nil {
		opts = append(opts, nats.Secure(cfg.TLS))
	}
	if cfg.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(cfg.CredsFile))
	}
	if cfg.NKeyFile != "" {
		opt, err := nats.NkeyOptionFromSeed(cfg.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("read nkey seed %s: %w", cfg.NKeyFile, err)
		}
		opts = append(opts, opt)
	}
	return opts, nil
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}

// orDefault is v, or otherwise when v is the zero value.
func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
