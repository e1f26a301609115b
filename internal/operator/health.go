package operator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/drydock-rl/drydock/internal/cli"
)

// maxHealthBody bounds what is read of an answer, in bytes.
const maxHealthBody = 64 << 10

// Health asks a process's /healthz or /readyz. It returns nil exactly if the answer is 200; otherwise the error names
// the checks that failed.
func Health(ctx context.Context, target string) error {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return cli.WithCode(cli.ExitUsage, fmt.Errorf("%q is no URL to ask: expected http://HOST:PORT/readyz", target))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return cli.WithCode(cli.ExitUnavailable, fmt.Errorf("ask for health: %w (is the process running, with --admin on that address?)", err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxHealthBody))
	switch {
	case resp.StatusCode == http.StatusOK:
		return nil
	case err != nil:
		return cli.WithCode(cli.ExitUnavailable, fmt.Errorf("ask for health: read the answer of %s: %w", target, err))
	}
	return fmt.Errorf("%s answers %s: %s", target, resp.Status, failing(string(body)))
}

// failing picks the checks that failed out of a body; one in another form is shown by its beginning.
func failing(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if check, ok := strings.CutPrefix(line, "[fail] "); ok {
			failed = append(failed, printable(strings.TrimSpace(check)))
		}
	}
	if len(failed) == 0 {
		return brief(printable(strings.TrimSpace(body)), 200)
	}
	return strings.Join(failed, "; ")
}
