package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// durability says what becomes of acknowledged versions when machines fail. Of a single replica on disk that depends
// on a setting of the server which clients can't see.
func durability(ctx context.Context, cfg messages.Config, monitor string) (string, error) {
	switch {
	case cfg.Memory:
		return "in memory: a restart of the servers loses everything; publishers put back what they still hold", nil
	case cfg.Replicas > 1:
		return fmt.Sprintf("%d replicas: what is acknowledged outlives the machines of fewer than half of them", cfg.Replicas), nil
	case monitor == "":
		return "one replica: durable only if its server has sync_interval: always, which a client can't see; --monitor http://HOST:8222 looks", nil
	}
	always, interval, err := syncs(ctx, monitor)
	switch {
	case err != nil:
		return "", err
	case always:
		return "one replica: its server syncs every write before it acknowledges it", nil
	}
	return fmt.Sprintf("WARNING: one replica, and its server syncs every %v: a power cut loses versions that were acknowledged. Set sync_interval: always in its jetstream block", interval), nil
}

// defaultSync is nats-server's own interval, which it shows as none.
const defaultSync = 2 * time.Minute

// maxVarz bounds what is read of a server's answer, in bytes.
const maxVarz = 1 << 20

// syncs asks a server's monitoring pages when it syncs its store.
func syncs(ctx context.Context, monitor string) (always bool, interval time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(monitor, "/")+"/varz", http.NoBody)
	if err != nil {
		return false, 0, cli.WithCode(cli.ExitUsage, fmt.Errorf("--monitor %q: expected http://HOST:PORT: %w", monitor, err))
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return false, 0, cli.WithCode(cli.ExitUnavailable, fmt.Errorf("ask the server's monitoring pages: %w (does it run with -m 8222?)", err))
	}
	defer resp.Body.Close()
	var varz struct {
		JetStream struct {
			Config *struct {
				SyncInterval time.Duration `json:"sync_interval"`
				SyncAlways   bool          `json:"sync_always"`
			} `json:"config"`
		} `json:"jetstream"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxVarz)).Decode(&varz); err != nil {
		return false, 0, cli.WithCode(cli.ExitUnavailable, fmt.Errorf("read %s/varz: %w", monitor, err))
	}
	c := varz.JetStream.Config
	if c == nil {
		return false, 0, cli.WithCode(cli.ExitUnavailable, fmt.Errorf("%s/varz tells of no JetStream: is it the server of this model?", monitor))
	}
	if c.SyncInterval == 0 {
		c.SyncInterval = defaultSync
	}
	return c.SyncAlways, c.SyncInterval, nil
}
