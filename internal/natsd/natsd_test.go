package natsd

import (
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRestartKeepsPortAndStore(t *testing.T) {
	t.Parallel()
	s, err := Start(Options{Dir: t.TempDir(), SyncAlways: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown()
	publish := func() uint64 {
		t.Helper()
		nc, err := nats.Connect(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := nc.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
			t.Fatal(err)
		}
		ack, err := js.Publish("s", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		return ack.Sequence
	}
	first, url := publish(), s.URL()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if second := publish(); second != first+1 || s.URL() != url {
		t.Errorf("sequences %d and %d, at %s and %s", first, second, url, s.URL())
	}
	s.Shutdown()
	s.Shutdown()
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	if _, err := Start(Options{}); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("no folder: %v", err)
	}
	if _, err := Start(Options{Config: "no-such-file.conf", NoJetStream: true}); err == nil || !strings.Contains(err.Error(), "no-such-file.conf") {
		t.Errorf("no such configuration: %v", err)
	}
	if _, err := Start(Options{Dir: "/proc/nowhere"}); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("a store that can't be written: %v", err)
	}
	s, err := Start(Options{NoJetStream: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown()
	port := s.srv.Addr().(*net.TCPAddr).Port //nolint:errcheck // a TCP listener's address
	if _, err := Start(Options{NoJetStream: true, Port: port}); err == nil || !strings.Contains(err.Error(), "not free") {
		t.Errorf("a port that is taken: %v", err)
	}
}
