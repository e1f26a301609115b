package tcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/registry"
)

// server accepts readers. Each connection has one goroutine and one buffer of its own, so that a slow or vanished
// reader costs the others nothing.
type server struct {
	cfg     *Config
	regions *registry.Registry
	ln      net.Listener
	tls     *tls.Config // nil: plain
	access  access
	gate    atomic.Pointer[rdma.Admit] // nil: everybody is admitted

	mu      sync.Mutex
	closed  bool
	stop    chan struct{}       // closed with it
	conns   map[net.Conn]string // to the client's address
	clients map[string]int      // connections by address
	running sync.WaitGroup
}

func listen(cfg *Config, regions *registry.Registry) (*server, error) {
	s := &server{cfg: cfg, regions: regions, conns: map[net.Conn]string{}, clients: map[string]int{}, stop: make(chan struct{})}
	_, _ = rand.Read(s.access.token[:]) // documented never to fail
	if err := s.secure(); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", cfg.Listen, err)
	}
	s.ln, s.access.addresses = ln, cfg.Advertise
	if len(cfg.Advertise) == 0 {
		if s.access.addresses, err = advertised(ln.Addr()); err != nil {
			return nil, errors.Join(err, ln.Close())
		}
	}
	s.running.Go(s.accept)
	return s, nil
}

// secure prepares TLS: the configured certificate, or one of this process's life whose hash readers know.
func (s *server) secure() error {
	switch {
	case s.cfg.ServerTLS != nil:
		s.access.tls, s.tls = true, s.cfg.ServerTLS
	case s.cfg.Secure:
		cert, err := selfSigned()
		if err != nil {
			return fmt.Errorf("make a certificate: %w", err)
		}
		s.access.tls, s.access.pinned = true, true
		s.access.pin = sha256.Sum256(cert.Certificate[0])
		s.tls = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}
	}
	return nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func (s *server) addr() string { return s.ln.Addr().String() }

// accept hands each connection to a goroutine, within the limits. A failure to accept that isn't the end (too many
// descriptors) is waited out.
func (s *server) accept() {
	for {
		c, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.cfg.Logger.Warn("accept reader", "transport", Name, "error", err)
			if s.pause() {
				return
			}
			continue
		}
		if err := s.admit(c); err != nil {
			s.cfg.Logger.Warn("turn reader away", "transport", Name, "client", c.RemoteAddr().String(), "error", err)
			_ = c.Close()
			continue
		}
		s.running.Go(func() {
			defer s.leave(c)
			s.handle(c)
		})
	}
}

// pause waits a little, and says whether the server was closed meanwhile.
func (s *server) pause() bool {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-s.stop:
		return true
	}
}

func (s *server) admit(c net.Conn) error {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return net.ErrClosed
	case len(s.conns) >= s.cfg.MaxConns:
		return fmt.Errorf("%d connections are the limit", s.cfg.MaxConns)
	case s.clients[host] >= s.cfg.MaxConnsPerClient:
		return fmt.Errorf("%d connections of one client are the limit", s.cfg.MaxConnsPerClient)
	}
	s.conns[c] = host
	s.clients[host]++
	return nil
}

func (s *server) leave(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	host := s.conns[c]
	delete(s.conns, c)
	if s.clients[host]--; s.clients[host] == 0 {
		delete(s.clients, host)
	}
}

func (s *server) close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.stop)
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	err := s.ln.Close()
	s.running.Wait()
	if err != nil {
		return fmt.Errorf("close listener: %w", err)
	}
	return nil
}
