package messages_test

import (
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// awaitElection waits until the other servers have a leader for each of the model's
// streams, and says how long it took since then.
func awaitElection(t *testing.T, cluster *natstest.Cluster, gone int, since time.Time) time.Duration {
	t.Helper()
	token := messages.Token(model)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for _, stream := range []string{"REFIT_" + token, "KV_refit_lease_" + token, "KV_refit_status_" + token} {
		for cluster.Leader(stream, gone) < 0 {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("no leader for %s after a minute", stream)
			}
		}
	}
	return time.Since(since)
}

// TestFrozenLeader: the stream's leader is stopped and not killed: its connections stay
// open and its kernel accepts new ones, the other servers go on handing it a share of the
// reads, and nobody is told anything. Work resumes 2 s after the others have elected a
// leader all the same.
func TestFrozenLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs three server processes")
	}
	cluster := natstest.StartCluster(t)
	f := startFleetThatLives(t, cluster.URL(), messages.Config{Replicas: 3}, time.Hour)
	f.advance(time.Minute)
	stream := "REFIT_" + messages.Token(model)
	for began, round := time.Now(), 0; round < 2 || time.Since(began) < *chaosFor; round++ {
		frozen := max(cluster.Leader(stream), 0)
		goal := f.committed.Load() + 2 // what is under way may have been committed by it; this was not
		stopped := time.Now()
		cluster.Stop(frozen, true)
		elected := awaitElection(t, cluster, frozen, stopped)
		f.reach(goal, time.Minute)
		resumed := time.Since(stopped)
		t.Logf("server %d is frozen: others lead after %v, a new version is installed everywhere %v later",
			frozen, elected.Round(time.Millisecond), (resumed - elected).Round(time.Millisecond))
		if resumed > elected+2*time.Second+slack {
			t.Errorf("work resumed %v after the leader was frozen, its successor was elected after %v", resumed, elected)
		}
		cluster.Stop(frozen, false)
		f.advance(time.Minute)
	}
	f.end()
}

// slack is what a busy machine adds to a bound that a quiet one keeps.
const slack = 6 * time.Second
