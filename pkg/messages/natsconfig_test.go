package messages_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// guarded is a server with TLS and the generated permissions.
type guarded struct {
	server *natsd.Server
	pool   *x509.CertPool
	seeds  map[string]string // user name to seed file
	token  string
}

func startGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{seeds: map[string]string{}, token: messages.Token(model)}
	dir := t.TempDir()
	key := func(name string) string {
		kp, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		seed, err := kp.Seed()
		if err != nil {
			t.Fatal(err)
		}
		public, err := kp.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		g.seeds[name] = filepath.Join(dir, name+".nk")
		if err := os.WriteFile(g.seeds[name], seed, 0o600); err != nil {
			t.Fatal(err)
		}
		return public
	}
	cfg := messages.ServerConfig{
		Token: g.token, Publishers: []string{key("publisher-0"), key("publisher-1")},
		Receivers: []messages.NamedKey{{Name: "rx-0", Key: key("rx-0")}, {Name: "rx-1", Key: key("rx-1")}},
		Operators: []string{key(messages.OperatorName)},
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(path, []byte(cfg.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var tlsConfig *tls.Config
	tlsConfig, g.pool = serverTLS(t)
	g.server = natstest.Start(t, natsd.Options{Config: path, TLS: tlsConfig})
	return g
}

// serverTLS makes a certificate for the loopback address, which is its own authority.
func serverTLS(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}, pool
}

func (g *guarded) dial(t *testing.T, name string) *nats.Conn {
	t.Helper()
	nc, err := messages.Dial(strings.Replace(g.server.URL(), "nats://", "tls://", 1), messages.DialConfig{
		Name: name, NKeyFile: g.seeds[name], InboxPrefix: messages.InboxPrefix(name),
		TLS: &tls.Config{RootCAs: g.pool, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func (g *guarded) open(t *testing.T, name string) *messages.Control {
	t.Helper()
	c, err := messages.Open(natstest.Context(t, 10*time.Second), g.dial(t, name), memory())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() { _ = c.Close() }) // always nil
	return c
}

// TestPermissions runs the protocol with the generated permissions over TLS, and then
// tries each thing that a role may not do: it must be refused at once, by name.
func TestPermissions(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	ctx := natstest.Context(t, 40*time.Second)
	if err := messages.Init(ctx, g.dial(t, messages.OperatorName), memory()); err != nil {
		t.Fatal(err)
	}
	p0, p1, rx0, op := g.open(t, "publisher-0"), g.open(t, "publisher-1"), g.open(t, "rx-0"), g.open(t, messages.OperatorName)
	run := takeRun(t, p0, "job", 2)
	key, next := messages.Key{Run: run.Run, Version: 1}, messages.Key{Run: run.Run, Version: 2}
	allowed(ctx, t, p0, p1, rx0, op, key)

	rx0Conn, p0Conn, opConn := g.dial(t, "rx-0"), g.dial(t, "publisher-0"), g.dial(t, messages.OperatorName)
	for what, try := range map[string]func(context.Context) error{
		"rank 1 takes a run":                 func(ctx context.Context) error { _, err := p1.TakeRun(ctx, "mutiny", 2); return err },
		"rank 1 publishes rank 0's table":    func(ctx context.Context) error { return p1.Publish(ctx, publication(next, 0, 2)) },
		"a receiver publishes a table":       func(ctx context.Context) error { return rx0.Publish(ctx, publication(next, 0, 2)) },
		"a receiver abandons a version":      func(ctx context.Context) error { return rx0.Abandon(ctx, next, "because") },
		"a receiver retires a version":       func(ctx context.Context) error { return rx0.Retire(ctx, key, 0) },
		"a receiver takes a run":             func(ctx context.Context) error { _, err := rx0.TakeRun(ctx, "mutiny", 2); return err },
		"a receiver rolls back":              func(ctx context.Context) error { _, err := rx0.Rollback(ctx, key, "rx-0", "because"); return err },
		"a receiver leases as another":       func(ctx context.Context) error { _, err := rx0.AcquireLease(ctx, key, "rx-1"); return err },
		"a receiver writes another's status": func(ctx context.Context) error { return rx0.PutStatus(ctx, "rx-1", messages.Status{}) },
		"a rank takes a lease":               func(ctx context.Context) error { _, err := p0.AcquireLease(ctx, key, "rx-0"); return err },
		"a rank writes a receiver's status":  func(ctx context.Context) error { return p0.PutStatus(ctx, "rx-0", messages.Status{}) },
		"a rank rolls back":                  func(ctx context.Context) error { _, err := p0.Rollback(ctx, key, "p0", "because"); return err },
		"an operator publishes a table":      func(ctx context.Context) error { return op.Publish(ctx, publication(next, 1, 2)) },
		"an operator takes a run":            func(ctx context.Context) error { _, err := op.TakeRun(ctx, "mutiny", 2); return err },
		"an operator takes a lease":          func(ctx context.Context) error { _, err := op.AcquireLease(ctx, key, "rx-0"); return err },
		"a receiver commits":                 func(ctx context.Context) error { _, err := rx0.Commit(ctx, key, 2); return err },
		"a rank writes another's status": func(ctx context.Context) error {
			return p0.PutStatus(ctx, messages.PublisherName(1), messages.Status{})
		},
		"an operator writes a status":     func(ctx context.Context) error { return op.PutStatus(ctx, "rx-0", messages.Status{}) },
		"a receiver creates a model":      func(ctx context.Context) error { return messages.Init(ctx, rx0Conn, messages.Config{Model: "another"}) },
		"a receiver removes the model":    func(ctx context.Context) error { return messages.Remove(ctx, rx0Conn, memory()) },
		"a rank creates a model":          func(ctx context.Context) error { return messages.Init(ctx, p0Conn, messages.Config{Model: "another"}) },
		"a rank removes the model":        func(ctx context.Context) error { return messages.Remove(ctx, p0Conn, memory()) },
		"an operator makes another model": func(ctx context.Context) error { return messages.Init(ctx, opConn, messages.Config{Model: "another"}) },
	} {
		began := time.Now()
		err := try(natstest.Context(t, 8*time.Second))
		if !errors.Is(err, messages.ErrPermission) || !strings.Contains(err.Error(), "this user may not publish to ") {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%s: refused only after %v", what, took)
		}
	}
	cannotListen(t, g, "rx-0", messages.InboxPrefix("rx-1")+".>", "refit.>", "$JS.API.>", "_INBOX.>")
	if _, err := messages.Dial(g.server.URL(), messages.DialConfig{TLS: &tls.Config{RootCAs: g.pool}}); err == nil {
		t.Error("connected without a key")
	}
}

// allowed does everything that the roles are for.
func allowed(ctx context.Context, t *testing.T, p0, p1, rx, op *messages.Control, key messages.Key) {
	t.Helper()
	if _, err := p1.AwaitRun(ctx, "job"); err != nil {
		t.Fatal(err)
	}
	watch, err := rx.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	big := wide(key, 1, 2, 100_000) // its 200,000 digests do not ride inline
	for _, err := range []error{p0.Publish(ctx, publication(key, 0, 2)), p1.Publish(ctx, big)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []*messages.Control{p1, p0} {
		if _, err := c.Commit(ctx, key, 2); err != nil {
			t.Fatal(err)
		}
	}
	if a := <-watch; a.Key != key {
		t.Fatalf("announced %s", a.Key)
	}
	lease, err := rx.AcquireLease(ctx, key, "rx-0")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := rx.Assemble(ctx, key); err != nil || len(v.Ranks[1].Tiles.Digests) != 200_000 {
		t.Fatal(err)
	}
	if _, err := op.Rollback(ctx, key, "alice", "a drill"); err != nil {
		t.Error(err)
	}
	if r, err := op.Why(ctx, key); err != nil || len(r.Holders) != 1 {
		t.Errorf("%v, %v", r, err)
	}
	for _, err := range []error{
		lease.Confirm(ctx), lease.Release(ctx),
		rx.PutStatus(ctx, "rx-0", messages.Status{Role: messages.RoleReceiver}),
		p0.PutStatus(ctx, messages.PublisherName(0), messages.Status{Role: messages.RolePublisher}),
		op.Abandon(ctx, messages.Key{Run: key.Run, Version: 99}, "a drill"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if list, err := rx.Statuses(ctx); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}

// cannotListen subscribes where a user may not, and waits for the server's word.
func cannotListen(t *testing.T, g *guarded, name string, subjects ...string) {
	t.Helper()
	for _, subject := range subjects {
		nc := g.dial(t, name)
		refused := make(chan error, 1)
		nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case refused <- err:
			default:
			}
		})
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s listens to %s: %v", name, subject, err)
			}
		case <-time.After(3 * time.Second):
			t.Errorf("%s may listen to %s", name, subject)
		}
	}
}
