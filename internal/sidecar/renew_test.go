package sidecar

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// TestTheStatusOfMemoryReadInPlaceIsRenewed lets ten minutes pass in which the trainer does nothing: the status must never
// be older than half of what it lasts, and nothing goes on after close.
func TestTheStatusOfMemoryReadInPlaceIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var last time.Time
		puts := 0
		p := &inPlace{slot: messages.Slot{State: "committed"}, status: func(_ context.Context, slots []messages.Slot, _ uint64) {
			if since := time.Since(last); puts > 0 && since > 30*time.Second {
				t.Errorf("not renewed for %v", since)
			}
			if len(slots) != 1 || slots[0].State != "committed" {
				t.Errorf("it says %+v", slots)
			}
			last, puts = time.Now(), puts+1
		}}
		p.keepStatus(renewInterval)
		<-time.After(10 * time.Minute) // of the bubble's clock
		if err := p.close(); err != nil {
			t.Fatal(err)
		}
		before := puts
		<-time.After(time.Minute)
		if before < 20 || puts != before {
			t.Errorf("%d times while it was open, %d after it was closed", before, puts-before)
		}
	})
}
