package operator

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/pkg/messages"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden tables")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares what is drawn with testdata/name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s (rewrite with -rewrite)\ngot\n%s\nwant\n%s", path, got, want)
	}
}

// drawn is an answer as people see it, and as programs do.
func drawn(t *testing.T, a Answer) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, asJSON := range []bool{false, true} {
		if err := Show(&b, a, asJSON); err != nil {
			t.Fatal(err)
		}
		if !asJSON {
			b.WriteString("\n--- json\n")
		}
	}
	return b.Bytes()
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) time.Time { return now.Add(-d) }

func key(run, version uint64) messages.Key { return messages.Key{Run: run, Version: version} }

func manifest(k messages.Key, world int, nbytes int64) *messages.Manifest {
	m := &messages.Manifest{Model: "org/tiny", Key: k, World: world, Ranks: make([]messages.ManifestRank, world)}
	m.Ranks[0].Nbytes = nbytes
	return m
}

// sampleView is a model in the middle of things: run 2 has fenced run 1, 2.4 is newest, 2.5 is on its way, one receiver is
// behind and failed, one is hostile to terminals.
func sampleView() *View {
	partial := manifest(key(2, 4), 4, 1<<20)
	partial.Base = &messages.Ref{Key: key(2, 3)}
	return &View{
		Model: "org/tiny", Now: now, Newest: key(2, 4),
		Run:   messages.RunRecord{Run: 2, Job: "job-b", World: 4, Taken: before(time.Hour)},
		Order: &messages.Order{N: 1, To: key(2, 2), By: "ada@ops", Reason: "loss went up\nby 3", At: before(50 * time.Minute)},
		Versions: []messages.Committed{
			{Key: key(1, 9), At: before(3 * 24 * time.Hour), Manifest: manifest(key(1, 9), 2, 5e8)},
			{Key: key(2, 1), At: before(90 * time.Second), Ended: &messages.Ended{State: messages.EndAbandoned, Reason: "rank 3 died before it had published its part"}},
			{Key: key(2, 2), At: before(70 * time.Second), Ended: &messages.Ended{State: messages.EndRetired, Reason: "superseded"}},
			{Key: key(2, 3), At: before(30 * time.Second), Manifest: manifest(key(2, 3), 4, 209715200)},
			{Key: key(2, 4), At: before(4 * time.Second), Manifest: partial},
		},
		Leases: map[messages.Key][]string{key(2, 4): {"receiver-1"}},
		Statuses: []messages.Status{
			{
				Role: messages.RolePublisher, Name: "publisher-0", Host: "0a1b2c3d-host-with-a-long-name", Ranks: []int{0}, Job: "job-b", Run: 2, Keep: "2,every", Updated: before(time.Second),
				Slots: []messages.Slot{{Key: key(2, 4), State: "committed", Holders: []string{"receiver-1"}}, {Key: key(2, 5), State: "published"}},
			},
			{
				Role: messages.RolePublisher, Name: "publisher-1", Host: "host-a", Ranks: []int{1}, Job: "job-b", Run: 2, Updated: before(2 * time.Second),
				Slots: []messages.Slot{{Key: key(2, 4), State: "committed"}, {Key: key(2, 5), State: "filling"}},
			},
			{
				Role: messages.RolePublisher, Name: "publisher-old", Host: "host-z", Ranks: []int{3}, Job: "job-a", Run: 1, Updated: before(40 * time.Second),
				Slots: []messages.Slot{{State: "free"}},
			},
			{
				Role: messages.RoleReceiver, Name: "receiver-0", Host: "host-b", Ranks: []int{0, 1, 2, 3, 8}, Serving: key(2, 4), Updated: before(3 * time.Second),
				Arenas: []string{"slot-2", "slot-1"}, Skipped: []messages.Key{key(2, 2)},
			},
			{
				Role: messages.RoleReceiver, Name: "receiver-1", Host: "host-\x1b[31mred", Ranks: []int{4}, Serving: key(1, 9), Staging: key(2, 4), StageState: "reading", Updated: before(time.Second),
				Failure: &messages.Failure{Class: "corrupt-tile", Text: "tile 3 of model.embed_tokens.weight has another digest than rank 2 published", Key: key(2, 3), At: before(20 * time.Second)},
			},
		},
		Quarantined: []messages.Quarantined{{Subject: "refit.org-tiny.v.2.5.t.3", Seq: 77, Nbytes: 12, Reason: "drydock.table.v1: malformed", At: before(time.Minute)}},
	}
}
