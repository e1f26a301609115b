package rdmabench

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunMeasuresWhatItIsAskedFor(t *testing.T) {
	t.Parallel()
	var heard int
	rep, err := Run(t.Context(), Options{
		Transports: []string{"local", "vmread", "tcp", "tls"}, Nbytes: 8 << 20, Times: 1,
		Sources: []int{1, 3}, Progress: func(Row) { heard++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	const shapes, baselines, transports = 4, 2, 4
	if want := shapes*baselines + transports*(shapes*(2+1)+1); len(rep.Rows) != want || heard != want {
		t.Errorf("%d rows, %d heard of, want %d", len(rep.Rows), heard, want)
	}
	if len(rep.Costs) != transports+1 || len(rep.Missing) != 0 || len(rep.Extra) != 2+2*transports {
		t.Errorf("costs %v, missing %v, extra %v", rep.Costs, rep.Missing, rep.Extra)
	}
	var b bytes.Buffer
	if err := rep.Write(&b); err != nil || !strings.Contains(b.String(), "tls") {
		t.Errorf("%v: %s", err, b.String())
	}
}

func TestFitFindsTheCostsThatMadeTheRows(t *testing.T) {
	t.Parallel()
	const alpha, beta = 3e-8, 2e-10
	rows := []Row{{Transport: rawName, Sources: 1, Runs: 1, Nbytes: 1, Seconds: 1}}
	for _, r := range []struct{ runs, nbytes int64 }{{1, 1 << 27}, {512, 1 << 25}, {8192, 1 << 25}, {90000, 1 << 25}} {
		rows = append(rows, Row{
			Transport: "x", Sources: 1, Runs: r.runs, Nbytes: r.nbytes,
			Seconds: alpha*float64(r.runs) + beta*float64(r.nbytes),
		})
	}
	got := fit(rows)
	if len(got) != 1 || math.Abs(got[0].Alpha/alpha-1) > 1e-6 || math.Abs(got[0].Beta/beta-1) > 1e-6 {
		t.Fatalf("%+v", got)
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Nbytes: 5}, {Sources: []int{0}}, {Transports: []string{"pigeon"}, Nbytes: 1 << 20, Times: 1}} {
		if rep, err := Run(t.Context(), o); err == nil {
			t.Errorf("%+v gives %+v", o, rep)
		}
	}
}
