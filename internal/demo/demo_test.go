package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/proof"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// line is a record as a receiver prints it.
func line(t *testing.T, version uint64, outcome tracing.Outcome, class refit.Class) string {
	t.Helper()
	r := tracing.Record{Version: version, Bytes: 10, Drydock: tracing.Extension{Outcome: outcome, ErrorType: string(class), Error: "no luck"}}
	r.Drydock.NeededBytes, r.Drydock.VerifiedBytes, r.Drydock.StagedBytes = 8, 5, 10
	text, err := r.Line()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func quiet(int, *tracing.Record) {}

func TestRecordsWaitForAll(t *testing.T) {
	t.Parallel()
	rs := newRecords(quiet)
	rs.line(0, "some other line")
	rs.line(0, tracing.RecordPrefix+" {broken")
	rs.line(0, line(t, 1, tracing.OutcomeApplied, ""))
	rs.line(1, line(t, 1, tracing.OutcomeFailed, refit.SourceLost)) // is tried again
	go rs.line(1, line(t, 1, tracing.OutcomeApplied, ""))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all, err := rs.wait(ctx, 1, 2, nil)
	if err != nil || len(all) != 2 || all[0] == nil || all[1] == nil {
		t.Errorf("%v, %v", all, err)
	}
}

func TestRecordsEndTheWait(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	failed <- errors.New("publisher-0 ended by itself")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("out of time"))
	for _, c := range []struct {
		name   string
		ctx    context.Context
		failed chan error
		class  refit.Class
		says   []string
	}{
		{"a failure that no attempt mends", t.Context(), nil, refit.PlanRefused, []string{"receiver-1", "no luck"}},
		{"a child that died", t.Context(), failed, refit.SourceLost, []string{"publisher-0 ended"}},
		{"time", ended, nil, refit.SourceLost, []string{"receiver-0", "receiver-1", "version 1", "out of time"}},
	} {
		rs := newRecords(quiet)
		rs.line(1, line(t, 1, tracing.OutcomeFailed, c.class))
		<-rs.added
		_, err := rs.wait(c.ctx, 1, 2, c.failed)
		for _, words := range c.says {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: the error doesn't say %q: %v", c.name, words, err)
			}
		}
	}
}

// programs writes shell scripts in the place of the programs.
func programs(t *testing.T, publisher, receiver string) string {
	t.Helper()
	dir := t.TempDir()
	for name, body := range map[string]string{"publisher": publisher, "receiver": receiver} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestChildrenAreToldToLeave(t *testing.T) {
	t.Parallel()
	const waits = `trap 'echo bye >&2; exit 0' TERM; echo ready; while :; do read x; done`
	cs, err := newChildren(programs(t, waits, "echo ready; cat"), []string{"A=b"})
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 2)
	for _, name := range []string{"publisher", "receiver"} {
		log := filepath.Join(t.TempDir(), "log")
		if err := cs.start(name, name+"-0", log, nil, func(s string) { ready <- s }); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		select {
		case <-ready:
		case <-time.After(patience):
			t.Fatal("the children are not ready")
		}
	}
	if err := errors.Join(cs.stop(), cs.stop()); err != nil {
		t.Error(err)
	}
}

func TestChildThatDiesIsReportedOnce(t *testing.T) {
	t.Parallel()
	cs, err := newChildren(programs(t, "", "echo out of luck >&2; exit 7"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cs.start("receiver", "receiver-0", filepath.Join(t.TempDir(), "log"), nil, func(string) {}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-cs.failed:
		for _, words := range []string{"receiver-0", "exit status 7", "out of luck"} {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("the error doesn't say %q: %v", words, err)
			}
		}
	case <-time.After(patience):
		t.Fatal("nobody says that the child has died")
	}
	if err := cs.stop(); err != nil {
		t.Errorf("reported a second time: %v", err)
	}
}

func TestNewChildrenNeedsPrograms(t *testing.T) {
	t.Parallel()
	_, err := newChildren(t.TempDir(), nil)
	if cli.Code(err) != cli.ExitInput || !strings.Contains(err.Error(), "--bin-dir") {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := Options{Trainers: 1, Receivers: 1, Versions: 1}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []Options{{Receivers: 1, Versions: 1}, {Trainers: 1, Versions: 1}, {Trainers: 1, Receivers: 1}, {Trainers: 1000, Receivers: 1, Versions: 1}} {
		if err := bad.validate(); err == nil {
			t.Errorf("accepted: %+v", bad)
		}
	}
}

func TestSizesRoundDown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{size(0), "0 B"},
		{size(999), "999 B"},
		{size(1500), "1.5 kB"},
		{size(2_500_000), "2.5 MB"},
		{size(3_000_000_000), "3.00 GB"},
		{percent(0, 0), "–"},
		{percent(9999, 10000), "99.9 %"},
		{percent(5, 5), "100.0 %"},
		{percent(1, 3), "33.3 %"},
	} {
		if c.got != c.want {
			t.Errorf("%q, expected %q", c.got, c.want)
		}
	}
}

// TestTable checks that each stage has a row, and each receiver a column.
func TestTable(t *testing.T) {
	t.Parallel()
	record, err := tracing.ParseLine(line(t, 4, tracing.OutcomeApplied, ""))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	res := &result{Version: 4, Records: []*tracing.Record{&record, &record}, Proofs: []proof.Report{{Params: 2, Nbytes: 3}, {Params: 1, Nbytes: 4}}}
	if err := writeTable(&b, res); err != nil {
		t.Fatal(err)
	}
	want := []string{"version 4", "receiver-0", "receiver-1", "wire amplification", "1.250", "50.0 %", "apply pause"}
	for _, s := range tracing.Stages() {
		want = append(want, s.String())
	}
	for _, words := range want {
		if !strings.Contains(b.String(), words) {
			t.Errorf("the table has no %q:\n%s", words, b.String())
		}
	}
	if params, nbytes := res.proven(); params != 3 || nbytes != 7 {
		t.Errorf("%d parameters of %d bytes, expected 3 and 7", params, nbytes)
	}
}
