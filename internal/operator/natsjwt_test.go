package operator

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
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

// certificate is one for the loopback address, which is its own authority.
func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
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

// operated is a server in operator mode, over TLS, with the users that were generated for it.
type operated struct {
	users  Users
	server *natsd.Server
	pool   *x509.CertPool
	cfg    messages.Config
}

func startOperated(t *testing.T) *operated {
	t.Helper()
	dir := t.TempDir()
	o := &operated{
		users: Users{Model: "org/tiny", World: 2, Receivers: []string{"rx-0", "rx-1"}, Keys: filepath.Join(dir, "keys"), JWT: true},
		cfg:   messages.Config{Model: "org/tiny", Memory: true, LeaseTTL: 2 * time.Second},
	}
	var b bytes.Buffer
	made, err := NATSConfig(o.users, &b)
	if err != nil || len(made) != 5+5+3 { // seeds and credentials of five users, three keys that sign
		t.Fatalf("made %d files: %v, %v", len(made), made, err)
	}
	for _, path := range made {
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	conf := filepath.Join(dir, "nats.conf")
	write(t, conf, b.String())
	var server *tls.Config
	server, o.pool = certificate(t)
	o.server = natstest.Start(t, natsd.Options{Config: conf, TLS: server})
	return o
}

func (o *operated) dial(t *testing.T, name string) *nats.Conn {
	t.Helper()
	nc, err := messages.Dial(strings.Replace(o.server.URL(), "nats://", "tls://", 1), messages.DialConfig{
		Name: name, CredsFile: filepath.Join(o.users.Keys, name+".creds"), InboxPrefix: messages.InboxPrefix(name),
		TLS: &tls.Config{RootCAs: o.pool, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func (o *operated) open(t *testing.T, name string) *messages.Control {
	t.Helper()
	c, err := messages.Open(natstest.Context(t, 10*time.Second), o.dial(t, name), o.cfg)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() { _ = c.Close() }) // always nil
	return c
}

// small is a publication of one rank that a receiver can assemble.
func small(k messages.Key, rank, world int) messages.Publication {
	return messages.Publication{
		Key: k, Rank: rank, World: world,
		Layout: &messages.Layout{
			Rank: rank, Regions: []int64{4096}, Names: []string{"w"}, DTypes: []messages.DType{messages.BF16},
			ShapeEnd: []uint32{2}, Shapes: []int64{int64(world), 8}, Grid: []int64{1, 8},
			Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{0}, Box: []int64{int64(rank), int64(rank) + 1, 0, 8},
		},
		Endpoint: &messages.Endpoint{Rank: rank, Host: "host-a", Incarnation: fmt.Sprint("life-", rank), Regions: []messages.EndpointRegion{{Nbytes: 4096}}},
		Tiles:    &messages.Tiles{Digests: []uint64{k.Version}},
	}
}

// TestJWTUsersMayDoTheirPartAndNothingElse: with JWTs over TLS the roles refit, and each thing that a role may not do is
// refused at once, by name.
func TestJWTUsersMayDoTheirPartAndNothingElse(t *testing.T) {
	t.Parallel()
	o := startOperated(t)
	ctx := natstest.Context(t, 60*time.Second)
	if err := messages.Init(ctx, o.dial(t, messages.OperatorName), o.cfg); err != nil {
		t.Fatal(err)
	}
	p0, p1, rx, op := o.open(t, "publisher-0"), o.open(t, "publisher-1"), o.open(t, "rx-0"), o.open(t, messages.OperatorName)
	run, err := p0.TakeRun(ctx, "job", 2)
	if err != nil {
		t.Fatal(err)
	}
	k, next := messages.Key{Run: run.Run, Version: 1}, messages.Key{Run: run.Run, Version: 2}
	refits(ctx, t, p0, p1, rx, k)
	if _, err := op.Rollback(ctx, k, "alice", "a drill"); err != nil {
		t.Error(err)
	}
	for what, try := range map[string]func(context.Context) error{
		"rank 1 takes a run":              func(ctx context.Context) error { _, err := p1.TakeRun(ctx, "mutiny", 2); return err },
		"rank 1 publishes rank 0's table": func(ctx context.Context) error { return p1.Publish(ctx, small(next, 0, 2)) },
		"a rank takes a lease":            func(ctx context.Context) error { _, err := p0.AcquireLease(ctx, k, "rx-0"); return err },
		"a rank rolls back":               func(ctx context.Context) error { _, err := p0.Rollback(ctx, k, "p0", "because"); return err },
		"a receiver publishes a table":    func(ctx context.Context) error { return rx.Publish(ctx, small(next, 0, 2)) },
		"a receiver retires a version":    func(ctx context.Context) error { return rx.Retire(ctx, k, 0) },
		"a receiver abandons a version":   func(ctx context.Context) error { return rx.Abandon(ctx, next, "because") },
		"a receiver rolls back":           func(ctx context.Context) error { _, err := rx.Rollback(ctx, k, "rx-0", "because"); return err },
		"a receiver leases as another":    func(ctx context.Context) error { _, err := rx.AcquireLease(ctx, k, "rx-1"); return err },
		"a receiver writes others' word":  func(ctx context.Context) error { return rx.PutStatus(ctx, "rx-1", messages.Status{}) },
		"an operator publishes a table":   func(ctx context.Context) error { return op.Publish(ctx, small(next, 1, 2)) },
		"an operator takes a run":         func(ctx context.Context) error { _, err := op.TakeRun(ctx, "mutiny", 2); return err },
		"an operator takes a lease":       func(ctx context.Context) error { _, err := op.AcquireLease(ctx, k, "rx-0"); return err },
	} {
		began := time.Now()
		if err := try(natstest.Context(t, 10*time.Second)); !errors.Is(err, messages.ErrPermission) || !strings.Contains(err.Error(), "may not publish to") {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: refused only after %v", what, took)
		}
	}
	if _, err := messages.Dial(o.server.URL(), messages.DialConfig{TLS: &tls.Config{RootCAs: o.pool}}); err == nil {
		t.Error("connected without credentials")
	}
}

// refits publishes, commits, leases, assembles and releases a version.
func refits(ctx context.Context, t *testing.T, p0, p1, rx *messages.Control, k messages.Key) {
	t.Helper()
	for rank, p := range []*messages.Control{p0, p1} {
		if err := p.Publish(ctx, small(k, rank, 2)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p1.Commit(ctx, k, 2); err != nil {
		t.Fatal(err)
	}
	lease, err := rx.AcquireLease(ctx, k, "rx-0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rx.Assemble(ctx, k); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lease.Release(ctx), rx.PutStatus(ctx, "rx-0", messages.Status{Role: messages.RoleReceiver})); err != nil {
		t.Fatal(err)
	}
}

// Credentials that were handed out stay good: they are written anew only when they should say something else.
func TestJWTCredentialsAreKept(t *testing.T) {
	t.Parallel()
	u := Users{Model: "m", World: 1, Receivers: []string{"rx-0"}, Keys: t.TempDir(), JWT: true}
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(u.Keys, "rx-0.pub"), public)
	var b bytes.Buffer
	made, err := NATSConfig(u, &b)
	if err != nil || len(made) != 2+2+1+3 {
		t.Fatalf("made %v, %v", made, err)
	}
	if text, err := os.ReadFile(filepath.Join(u.Keys, "rx-0.jwt")); err != nil || strings.Contains(string(text), "SEED") {
		t.Errorf("the JWT of a user that keeps its seed: %v", err)
	}
	if made, err = NATSConfig(u, &b); err != nil || len(made) != 0 {
		t.Errorf("again: made %v, %v", made, err)
	}
	u.Model = "another"
	if made, err = NATSConfig(u, &b); err != nil || len(made) != 3 {
		t.Errorf("for another model: made %v, %v; want the three users' credentials", made, err)
	}
	write(t, filepath.Join(u.Keys, accountSeed+".nk"), "no seed")
	if _, err = NATSConfig(u, &b); err == nil {
		t.Error("a bad seed of the account was taken")
	}
}
