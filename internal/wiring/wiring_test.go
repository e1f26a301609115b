package wiring

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

var silent = slog.New(slog.DiscardHandler)

// fails checks an error's exit code and words.
func fails(t *testing.T, err error, code int, words ...string) {
	t.Helper()
	if err == nil || cli.Code(err) != code {
		t.Fatalf("error %v has exit code %d, expected %d", err, cli.Code(err), code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error doesn't say %q: %v", w, err)
		}
	}
}

func TestCheckURLs(t *testing.T) {
	t.Parallel()
	for url, good := range map[string]bool{
		"nats://a:4222": true, "a:4222": true, "tls://a:1,nats://b:2": true, "ws://a:80": true, "wss://a:443": true,
		"http://a:80": false, "nats://a:1, http://b:2": false, "://a": false,
	} {
		if err := checkURLs(url); (err == nil) != good {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestConnectGivesUpInTime(t *testing.T) {
	t.Parallel()
	n := NATS{NATS: "nats://127.0.0.1:1", NATSWait: 300 * time.Millisecond}
	_, err := n.Connect(t.Context(), "test", silent)
	fails(t, err, cli.ExitUnavailable, "127.0.0.1:1", "300ms", "--nats")
}

// Somebody who has mistyped an address learns within a second what the program does, without the password in it.
func TestConnectSaysThatItWaits(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	n := NATS{NATS: "nats://me:secret@127.0.0.1:1", NATSWait: 1300 * time.Millisecond}
	_, err := n.Connect(t.Context(), "test", slog.New(slog.NewTextHandler(&said, nil)))
	fails(t, err, cli.ExitUnavailable, "1.3s")
	if text := said.String(); strings.Count(text, "waiting for a NATS server") != 1 || !strings.Contains(text, "127.0.0.1:1") || strings.Contains(text, "secret") {
		t.Errorf("said %q", text)
	}
}

func TestConnectRefusesBadFiles(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range []NATS{{NATSCA: "/nowhere.pem"}, {NATSCA: empty}, {NATSCert: empty, NATSKey: empty}} {
		_, err := n.Connect(t.Context(), "test", silent)
		fails(t, err, cli.ExitInput, "certificate")
	}
	for _, n := range []NATS{{NATSCreds: "/nowhere.creds"}, {NATSNkey: "/nowhere.nk"}} {
		_, err := n.Connect(t.Context(), "test", silent)
		fails(t, err, cli.ExitInput, "/nowhere.")
	}
}

func TestTLSReadsAuthorityAndPair(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	conf, err := (&NATS{NATSCA: cert, NATSCert: cert, NATSKey: key}).tls()
	if err != nil || conf.RootCAs == nil || len(conf.Certificates) != 1 {
		t.Fatalf("%+v, %v", conf, err)
	}
	if conf, err := (&NATS{}).tls(); conf != nil || err != nil {
		t.Errorf("TLS is on without being asked for: %v, %v", conf, err)
	}
}

// selfSigned writes a certificate and its key.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", private)
}

// process opens a process on a server of its own.
func process(t *testing.T, b Base) (*Process, error) {
	t.Helper()
	server := natstest.Start(t, natsd.Options{})
	natstest.Open(t, server, messages.Config{Model: "m", Memory: true})
	b.NATS.NATS = server.URL()
	p, err := b.Start(t.Context(), "test", "test", 0, 1, silent)
	if err == nil {
		t.Cleanup(func() {
			if err := errors.Join(p.Close(), p.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	return p, err
}

func TestStartTellsWhoMakesModels(t *testing.T) {
	_, err := process(t, Base{Model: "another"})
	fails(t, err, cli.ExitUnavailable, `"another"`, "refitctl init --model another")
}

func TestCloseUndoesTheLastFirst(t *testing.T) {
	p, err := process(t, Base{Model: "m", Admin: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	for i := range 3 {
		p.Later(func() error { order = append(order, i); return nil })
	}
	if err := p.Close(); err != nil || len(order) != 3 || order[0] != 2 || order[2] != 0 {
		t.Errorf("closed in the order %v, error %v", order, err)
	}
}

// TestAProcessIsReadyWhenItWaitsForNothing asks /readyz while a process waits for something, and afterwards.
func TestAProcessIsReadyWhenItWaitsForNothing(t *testing.T) {
	p, err := process(t, Base{Model: "m", Admin: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	for _, c := range []struct {
		waits string
		ready bool
	}{{"", true}, {"its engine", false}, {"", true}} {
		p.Waits(c.waits)
		answer, err := client.Get(p.Admin + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if (answer.StatusCode == http.StatusOK) != c.ready || !c.ready && !strings.Contains(string(body), "waiting for its engine") {
			t.Errorf("waiting for %q: %s, %s", c.waits, answer.Status, body)
		}
	}
}

func TestOpenTransports(t *testing.T) {
	p, err := process(t, Base{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := (&Transports{Transport: "tcp"}).Open(p, Listen{Listen: "127.0.0.1:0"}, "i1")
	if err != nil || len(opened) != 1 || opened[0].Name() != "tcp" {
		t.Fatalf("%v, %v", opened, err)
	}
	auto, err := (&Transports{Transport: "auto", NixlLib: "/nowhere.so"}).Open(p, Listen{}, "i2")
	if err != nil || len(auto) < 2 {
		t.Errorf("auto opened %v, error %v; expected local and tcp at least", auto, err)
	}
	_, err = (&Transports{Transport: "nixl", NixlLib: "/nowhere.so"}).Open(p, Listen{}, "i3")
	fails(t, err, cli.ExitUnavailable, "nixl", "/nowhere.so", "--nixl-lib")
	_, err = (&Transports{Transport: "tcp"}).Open(p, Listen{Listen: "203.0.113.1:1"}, "i4")
	fails(t, err, cli.ExitCapacity, "203.0.113.1:1", "--listen")
}
