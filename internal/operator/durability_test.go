package operator

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// A single replica on a server that doesn't sync is created, and its operator told what that means.
func TestInitSaysWhatACrashCosts(t *testing.T) {
	t.Parallel()
	careless := natstest.Start(t, natsd.Options{Monitor: true})
	careful := natstest.Start(t, natsd.Options{Monitor: true, SyncAlways: true})
	for name, c := range map[string]struct {
		server  *natsd.Server
		memory  bool
		monitor string
		want    string
	}{
		"not looked":   {careless, false, "", "--monitor"},
		"not synced":   {careless, false, careless.MonitorURL(), "WARNING: one replica, and its server syncs every 2m0s"},
		"synced":       {careful, false, careful.MonitorURL() + "/", "syncs every write"},
		"in memory":    {careful, true, "", "in memory"},
		"in memory, 2": {careless, true, careless.MonitorURL(), "in memory"},
	} {
		cfg := messages.Config{Model: "org/" + messages.Token(name), Memory: c.memory, Replicas: 1}
		created, err := Init(natstest.Context(t, 10*time.Second), natstest.Connect(t, c.server), cfg, c.monitor)
		if err != nil || !strings.Contains(created.Durability, c.want) {
			t.Errorf("%s: %+v, %v", name, created, err)
		}
	}
}

func TestMonitorThatCannotTell(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer other.Close()
	for monitor, code := range map[string]int{"http://127.0.0.1:1": cli.ExitUnavailable, "http://[": cli.ExitUsage, other.URL: cli.ExitUnavailable} {
		if _, err := durability(natstest.Context(t, 10*time.Second), messages.Config{}, monitor); cli.Code(err) != code {
			t.Errorf("%s: %v", monitor, err)
		}
	}
}
