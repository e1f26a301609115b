package operator

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Users says who may use a guarded model.
type Users struct {
	Model     string
	World     int      // trainer ranks
	Receivers []string // by name, or name@engine
	Keys      string   // folder: NAME.nk holds a user's seed and is made where missing, unless NAME.pub holds its public key
	JWT       bool     // write the operator, account and users of a server in operator mode, instead of nkey users
}

// maxUsers bounds what is generated.
const maxUsers = 1 << 14

// NATSConfig writes the accounts block of a nats-server's configuration that lets each user do what the protocol needs
// of it and nothing else, or the operator's block and the users' credentials of a server that takes JWTs. It returns
// the secret files that it made.
func NATSConfig(u Users, out io.Writer) (made []string, err error) {
	if u.World < 1 || u.World+len(u.Receivers) > maxUsers {
		return nil, cli.WithCode(cli.ExitUsage, fmt.Errorf("%d ranks and %d receivers: expected at least one rank, and at most %d users", u.World, len(u.Receivers), maxUsers))
	}
	for _, receiver := range u.Receivers {
		name, _, _ := strings.Cut(receiver, "@")
		// Checked before a file gets its name: a name with a slash must not lead out of the folder.
		if name != messages.Token(name) || name == "" {
			return nil, cli.WithCode(cli.ExitUsage, fmt.Errorf("receiver %q: expected up to 64 of A-Z a-z 0-9 _ -", name))
		}
	}
	if err := os.MkdirAll(u.Keys, 0o700); err != nil {
		return nil, writeError(fmt.Errorf("make the folder of keys: %w", err))
	}
	r := &ring{dir: u.Keys}
	cfg := messages.ServerConfig{Token: messages.Token(u.Model)}
	for rank := range u.World {
		cfg.Publishers = append(cfg.Publishers, r.public(messages.PublisherName(rank)))
	}
	for _, receiver := range u.Receivers {
		name, engine, _ := strings.Cut(receiver, "@")
		cfg.Receivers = append(cfg.Receivers, messages.NamedKey{Name: name, Key: r.public(name), Engine: engine})
	}
	cfg.Operators = append(cfg.Operators, r.public(messages.OperatorName))
	if r.err != nil {
		return r.made, writeError(r.err)
	}
	if err := cfg.Validate(); err != nil {
		return r.made, cli.WithCode(cli.ExitInput, err)
	}
	text := cfg.String()
	if u.JWT {
		if text, err = r.jwtConfig(u, cfg.Users()); err != nil {
			return r.made, writeError(err)
		}
	}
	_, err = io.WriteString(out, text)
	return r.made, err
}

// ring finds or makes the keys of users in a folder. It keeps its first error and does nothing more.
type ring struct {
	dir  string
	made []string
	err  error
}

// public gives a user's public key.
func (r *ring) public(name string) string {
	if r.err != nil {
		return ""
	}
	for _, from := range []func(string) (string, error){r.given, r.kept, r.make} {
		key, err := from(name)
		if err == nil {
			return key
		}
		if !errors.Is(err, fs.ErrNotExist) {
			r.err = fmt.Errorf("key of %s: %w", name, err)
			return ""
		}
	}
	return ""
}

// maxSmall bounds files of keys, tokens and few words, in bytes.
const maxSmall = 64 << 10

// given reads a public key that somebody else made.
func (r *ring) given(name string) (string, error) {
	b, err := cli.ReadFile(filepath.Join(r.dir, name+".pub"), maxSmall)
	return strings.TrimSpace(string(b)), err
}

func (r *ring) kept(name string) (string, error) {
	path := filepath.Join(r.dir, name+".nk")
	b, err := cli.ReadFile(path, maxSmall)
	if err != nil {
		return "", err
	}
	pair, err := nkeys.ParseDecoratedUserNKey(b)
	if err != nil {
		return "", fmt.Errorf("read seed %s: %w", path, err)
	}
	defer pair.Wipe()
	return pair.PublicKey()
}

func (r *ring) make(name string) (string, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", err
	}
	defer pair.Wipe()
	seed, err := pair.Seed()
	if err != nil {
		return "", err
	}
	if err := r.secret(name+".nk", append(seed, '\n')); err != nil {
		return "", err
	}
	return pair.PublicKey()
}

// secret writes a new file that only its owner may read.
func (r *ring) secret(name string, content []byte) error {
	path := filepath.Join(r.dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	r.made = append(r.made, path)
	return nil
}
