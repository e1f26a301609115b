// Package natsd runs a NATS server with JetStream inside the process: for the demo,
// which must need no server, and for tests. It is never used by the publisher or the
// receiver, whose server is the operator's.
//
// Vocabulary: a server's dir is where its JetStream store lies; a restart is a
// shutdown and a start with the same dir and port.
//
// Law: Shutdown returns when the server's goroutines are gone and its port is free, so
// that a server with the same options can be started at once.
package natsd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Options says what server to run. Zero is a server on a free loopback port, with its
// store in memory only as far as streams say so.
type Options struct {
	Host       string       // "127.0.0.1"
	Port       int          // 0: a free one
	Dir        string       // JetStream's store; required unless NoJetStream
	SyncAlways bool         // fsync before every acknowledgement
	MaxStore   int64        // bytes on disk; 0: the server's choice
	MaxMemory  int64        // bytes in memory streams; 0: the server's choice
	MaxPayload int32        // bytes; 0: 1 MiB
	TLS        *tls.Config  // nil: plain
	Logger     *slog.Logger // nil: silent
	// Config is a server configuration file that is read first, e.g. for users and
	// permissions; "": none. The other fields win over it.
	Config string
	// Monitor serves the server's monitoring pages on a free loopback port.
	Monitor bool
	// NoJetStream leaves JetStream off.
	NoJetStream bool
}

// Server is a running server.
type Server struct {
	srv  *server.Server
	opts Options
}

// startTimeout bounds how long a server may take to accept connections: recovering a
// large store takes seconds.
const startTimeout = 20 * time.Second

// Start runs a server and waits until it accepts connections.
func Start(o Options) (*Server, error) {
	so, err := o.server()
	if err != nil {
		return nil, err
	}
	if err := probe(so); err != nil {
		return nil, fmt.Errorf("start a NATS server: %w", err)
	}
	srv, err := server.NewServer(so)
	if err != nil {
		return nil, fmt.Errorf("make a NATS server: %w", err)
	}
	if o.Logger != nil {
		srv.SetLoggerV2(logger{o.Logger}, false, false, false)
	}
	go srv.Start()
	if !srv.ReadyForConnections(startTimeout) {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, fmt.Errorf("start a NATS server on %s:%d with store %q: not ready after %v: is the port free and the folder writable?", so.Host, so.Port, so.StoreDir, startTimeout)
	}
	if !o.NoJetStream && !srv.JetStreamEnabled() {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, fmt.Errorf("start a NATS server: JetStream did not start with store %q", so.StoreDir)
	}
	if addr, ok := srv.Addr().(*net.TCPAddr); ok {
		o.Port = addr.Port // for restarts
	}
	return &Server{srv: srv, opts: o}, nil
}

// probe tries what the server would fail at without a word to its caller, who would
// then wait for it in vain: its port and its folder.
func probe(so *server.Options) error {
	l, err := net.Listen("tcp", net.JoinHostPort(so.Host, strconv.Itoa(max(so.Port, 0))))
	if err != nil {
		return fmt.Errorf("port %d is not free: %w", so.Port, err)
	}
	if err := l.Close(); err != nil {
		return fmt.Errorf("give port %d back: %w", so.Port, err)
	}
	if !so.JetStream {
		return nil
	}
	if err := os.MkdirAll(so.StoreDir, 0o755); err != nil {
		return fmt.Errorf("make the store's folder: %w", err)
	}
	f, err := os.CreateTemp(so.StoreDir, ".probe-")
	if err != nil {
		return fmt.Errorf("write to the store's folder: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func (o Options) server() (*server.Options, error) {
	so := &server.Options{}
	if o.Config != "" {
		var err error
		if so, err = server.ProcessConfigFile(o.Config); err != nil {
			return nil, fmt.Errorf("read NATS server configuration %s: %w", o.Config, err)
		}
	}
	so.NoSigs, so.NoLog = true, o.Logger == nil
	so.Host = "127.0.0.1"
	if o.Host != "" {
		so.Host = o.Host
	}
	so.Port = o.Port
	if o.Port == 0 {
		so.Port = server.RANDOM_PORT
	}
	if o.MaxPayload != 0 {
		so.MaxPayload = o.MaxPayload
	}
	if o.TLS != nil {
		so.TLSConfig, so.TLS = o.TLS, true
		so.TLSTimeout = 5
	}
	if o.Monitor {
		so.HTTPHost, so.HTTPPort = "127.0.0.1", server.RANDOM_PORT
	}
	so.JetStream = !o.NoJetStream
	if so.JetStream {
		if o.Dir == "" {
			return nil, fmt.Errorf("start a NATS server: JetStream needs a folder for its store")
		}
		so.StoreDir, so.SyncAlways = o.Dir, o.SyncAlways
		so.JetStreamMaxStore, so.JetStreamMaxMemory = o.MaxStore, o.MaxMemory
	}
	return so, nil
}

// URL is where clients connect.
func (s *Server) URL() string { return s.srv.ClientURL() }

// MonitorURL is where the monitoring pages are; "" without Options.Monitor.
func (s *Server) MonitorURL() string {
	addr := s.srv.MonitorAddr()
	if addr == nil {
		return ""
	}
	return "http://" + addr.String()
}

// Shutdown stops the server and waits until it is gone. It may be repeated.
func (s *Server) Shutdown() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

// Restart stops the server, if it still runs, and starts it with the same store and port.
func (s *Server) Restart() error {
	s.Shutdown()
	next, err := Start(s.opts)
	if err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	s.srv = next.srv
	return nil
}

// logger passes the server's messages to slog.
type logger struct{ *slog.Logger }

func (l logger) Noticef(format string, v ...any) { l.Info(fmt.Sprintf(format, v...)) }
func (l logger) Warnf(format string, v ...any)   { l.Warn(fmt.Sprintf(format, v...)) }
func (l logger) Fatalf(format string, v ...any)  { l.Error(fmt.Sprintf(format, v...)) }
func (l logger) Errorf(format string, v ...any)  { l.Error(fmt.Sprintf(format, v...)) }
func (l logger) Debugf(format string, v ...any)  { l.Debug(fmt.Sprintf(format, v...)) }
func (l logger) Tracef(format string, v ...any)  { l.Debug(fmt.Sprintf(format, v...)) }
