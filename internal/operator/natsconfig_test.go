package operator

import (
	"bytes"
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

// TestGeneratedUsersGetIn: a server that runs the block lets an operator create the model with the seed that was made.
func TestGeneratedUsersGetIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := Users{Model: "org/tiny", World: 2, Receivers: []string{"rx-0"}, Keys: filepath.Join(dir, "keys")}
	var first, second bytes.Buffer
	made, err := NATSConfig(u, &first)
	if err != nil || len(made) != 4 {
		t.Fatalf("made %v, %v", made, err)
	}
	for _, path := range made {
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if made, err = NATSConfig(u, &second); err != nil || len(made) != 0 || first.String() != second.String() {
		t.Errorf("again: made %v, %v; the same text: %t", made, err, first.String() == second.String())
	}
	conf := filepath.Join(dir, "nats.conf")
	write(t, conf, first.String())
	s := natstest.Start(t, natsd.Options{Config: conf})
	nc, err := messages.Dial(s.URL(), messages.DialConfig{
		NKeyFile: filepath.Join(u.Keys, messages.OperatorName+".nk"), InboxPrefix: messages.InboxPrefix(messages.OperatorName),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := Init(natstest.Context(t, 10*time.Second), nc, messages.Config{Model: u.Model, Memory: true}, ""); err != nil {
		t.Error(err)
	}
}

func TestGivenPublicKeyIsTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	public := "U" + strings.Repeat("A", 55)
	write(t, filepath.Join(dir, "publisher-0.pub"), public+"\n")
	var b bytes.Buffer
	made, err := NATSConfig(Users{Model: "m", World: 1, Keys: dir}, &b)
	if err != nil || len(made) != 1 || !strings.Contains(b.String(), public) {
		t.Errorf("made %v, %v", made, err)
	}
}

func TestWrongUsersAreRefused(t *testing.T) {
	t.Parallel()
	bad := t.TempDir()
	write(t, filepath.Join(bad, "publisher-0.nk"), "no seed")
	garbled := t.TempDir()
	write(t, filepath.Join(garbled, "publisher-0.pub"), "no key")
	for name, c := range map[string]struct {
		users Users
		code  int
	}{
		"no ranks":       {Users{Model: "m", Keys: t.TempDir()}, cli.ExitUsage},
		"too many":       {Users{Model: "m", World: maxUsers + 1, Keys: t.TempDir()}, cli.ExitUsage},
		"leading out":    {Users{Model: "m", World: 1, Receivers: []string{"../x"}, Keys: t.TempDir()}, cli.ExitUsage},
		"no name":        {Users{Model: "m", World: 1, Receivers: []string{""}, Keys: t.TempDir()}, cli.ExitUsage},
		"bad seed":       {Users{Model: "m", World: 1, Keys: bad}, cli.ExitInput},
		"bad public key": {Users{Model: "m", World: 1, Keys: garbled}, cli.ExitInput},
		"no folder":      {Users{Model: "m", World: 1, Keys: filepath.Join(bad, "publisher-0.nk")}, cli.ExitInput},
	} {
		var b bytes.Buffer
		if _, err := NATSConfig(c.users, &b); cli.Code(err) != c.code || b.Len() != 0 {
			t.Errorf("%s: %v, want code %d; wrote %d bytes", name, err, c.code, b.Len())
		}
	}
}
