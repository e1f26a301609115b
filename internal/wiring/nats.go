package wiring

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// NATS says how to reach the message server.
type NATS struct {
	NATS            string        `help:"NATS server URL, or a comma-separated list of the servers of one cluster." default:"nats://127.0.0.1:4222" placeholder:"URL"`
	NATSCreds       string        `help:"NATS credentials file (JWT and seed)." placeholder:"FILE"`
	NATSNkey        string        `help:"NATS nkey seed file." placeholder:"FILE"`
	NATSCA          string        `name:"nats-ca" help:"PEM file of the authority that signed the server's certificate; switches TLS on." placeholder:"FILE"`
	NATSCert        string        `help:"PEM file of the client's certificate, with --nats-key." placeholder:"FILE"`
	NATSKey         string        `help:"PEM file of the client's private key, with --nats-cert." placeholder:"FILE"`
	NATSInboxPrefix string        `help:"Inbox prefix, where the server's permissions give each role its own." placeholder:"SUBJECT"`
	NATSWait        time.Duration `help:"How long to keep trying when no server answers at start. Default: 15s; refitctl, which somebody waits for, 3s." default:"0s" placeholder:"TIME"`
}

// serverWait is the default of NATSWait: a server that is started together with the program is there by then.
const serverWait = 15 * time.Second

// sayAfter is how long a wait for a server goes unmentioned.
const sayAfter = time.Second

// Connect dials, waiting for a server as long as NATSWait says. A wait that is not over at once is told to the log.
func (n *NATS) Connect(ctx context.Context, name string, log *slog.Logger) (*nats.Conn, error) {
	if err := checkURLs(n.NATS); err != nil {
		return nil, cli.WithCode(cli.ExitUsage, err)
	}
	if err := n.checkFiles(); err != nil {
		return nil, cli.WithCode(cli.ExitInput, err)
	}
	conf, err := n.tls()
	if err != nil {
		return nil, cli.WithCode(cli.ExitInput, err)
	}
	cfg := messages.DialConfig{
		Name: name, TLS: conf, CredsFile: n.NATSCreds, NKeyFile: n.NATSNkey, InboxPrefix: n.NATSInboxPrefix, Logger: log,
	}
	wait := n.NATSWait
	if wait == 0 {
		wait = serverWait
	}
	began, said := time.Now(), false
	for {
		nc, err := messages.Dial(n.NATS, cfg)
		if err == nil {
			return nc, nil
		}
		if time.Since(began) > wait {
			return nil, cli.WithCode(cli.ExitUnavailable, fmt.Errorf(
				"%w (tried for %v; is a NATS server with JetStream running there? --nats names another)", err, wait))
		}
		if !said && time.Since(began) >= sayAfter {
			log.Info("waiting for a NATS server", "url", redacted(n.NATS), "at most", wait)
			said = true
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// checkFiles opens what the client would only miss while it dials, when it looks as if no server answered.
func (n *NATS) checkFiles() error {
	for _, file := range []struct{ flag, path string }{{"--nats-creds", n.NATSCreds}, {"--nats-nkey", n.NATSNkey}} {
		if file.path == "" {
			continue
		}
		f, err := os.Open(file.path)
		if err != nil {
			return fmt.Errorf("%s: %w", file.flag, err)
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("%s: %w", file.flag, err)
		}
	}
	return nil
}

// redacted is a list of addresses without the passwords in them.
func redacted(list string) string {
	addresses := strings.Split(list, ",")
	for i, a := range addresses {
		if u, err := url.Parse(strings.TrimSpace(a)); err == nil {
			addresses[i] = u.Redacted()
		}
	}
	return strings.Join(addresses, ",")
}

// schemes are what the client can speak; an address without one is a nats:// address.
var schemes = []string{"nats", "tls", "ws", "wss"}

// checkURLs refuses what no server can answer to.
func checkURLs(list string) error {
	for _, address := range strings.Split(list, ",") {
		scheme, _, found := strings.Cut(strings.TrimSpace(address), "://")
		if found && !slices.Contains(schemes, scheme) {
			return fmt.Errorf("--nats %s: expected nats://host:port, or one of the schemes %s", address, strings.Join(schemes, ", "))
		}
	}
	return nil
}

// maxPEM bounds a file of certificates, in bytes: a system's whole bundle has a quarter of it.
const maxPEM = 1 << 20

// tls is nil where no flag asks for it.
func (n *NATS) tls() (*tls.Config, error) {
	if n.NATSCA == "" && n.NATSCert == "" {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if n.NATSCA != "" {
		pem, err := cli.ReadFile(n.NATSCA, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("read certificate authority: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read certificate authority %s: no PEM certificate in it", n.NATSCA)
		}
	}
	if n.NATSCert != "" {
		pair, err := tls.LoadX509KeyPair(n.NATSCert, n.NATSKey)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
