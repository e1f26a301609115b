package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// TestBadMessagesAreShown: what can't be read is left where it is and shown, a commit and a
// status among the versions, a table by why; and the rest is shown as ever.
func TestBadMessagesAreShown(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	cfg := messages.Config{Model: "org/tiny", Memory: true}
	c := natstest.Open(t, s, cfg)
	ctx := natstest.Context(t, 20*time.Second)
	run := takeRun(t, c, "job", 1)
	publish(t, c, key(run, 1), 0, 1)
	if _, err := c.Commit(ctx, key(run, 1), 1); err != nil {
		t.Fatal(err)
	}
	nc := natstest.Connect(t, s)
	bad := map[string]string{
		"commit": "refit.org-tiny.c.1.2",
		"status": "$KV.refit_status_org-tiny.liar",
		"table":  "refit.org-tiny.v.1.3.t.0",
	}
	for what, subject := range bad {
		if _, err := nc.Request(subject, []byte("no msgpack map"), 5*time.Second); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	v, err := Look(ctx, c, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	shown := string(drawn(t, v.VersionList(0)))
	for _, want := range []string{bad["commit"], bad["status"], "1.1"} {
		if !strings.Contains(shown, want) {
			t.Errorf("refitctl versions lacks %q:\n%s", want, shown)
		}
	}
	e, err := Why(ctx, c, v, key(run, 3))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(drawn(t, e)); !strings.Contains(text, "Conflict: rank 0: drydock.table.v1") {
		t.Errorf("refitctl why lacks the bad table:\n%s", text)
	}
}
