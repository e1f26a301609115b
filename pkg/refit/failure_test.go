package refit

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages"
)

func TestErrorsOfTheControlPlaneHaveTheirClass(t *testing.T) {
	t.Parallel()
	for kind, want := range map[error]Class{
		context.Canceled:          Cancelled,
		messages.ErrLeaseLost:     LeaseLost,
		messages.ErrContradiction: Torn,
		messages.ErrMalformed:     Torn,
		messages.ErrSchema:        Torn,
		messages.ErrLimit:         Torn,
		messages.ErrRetired:       Gone,
		messages.ErrNotCommitted:  Gone,
		messages.ErrAbandoned:     Gone,
		messages.ErrFenced:        Superseded,
		messages.ErrUnavailable:   ControlPlane,
		messages.ErrIncomplete:    ControlPlane,
		context.DeadlineExceeded:  ControlPlane,
		messages.ErrPermission:    ControlPlane,
	} {
		err := &messages.RankError{Op: "assemble", Ranks: []int{1}, Err: fmt.Errorf("wrapped: %w", kind)}
		if got := ClassOf(controlError("assemble the version", err)); got != want {
			t.Errorf("%v: class %s, want %s", kind, got, want)
		}
	}
}

func TestPoliciesCoverEveryClassOnce(t *testing.T) {
	t.Parallel()
	seen := map[Class]bool{}
	for _, p := range Policies {
		if seen[p.Class] || p.Means == "" || p.Retried == "" || p.Seen == "" || p.Serves == "" {
			t.Errorf("row %+v is double or incomplete", p)
		}
		if retries := !strings.HasPrefix(p.Retried, "nothing"); retries != (p.Times != "") {
			t.Errorf("row %s retries %q, this often: %q", p.Class, p.Retried, p.Times)
		}
		seen[p.Class] = true
	}
	if PolicyFor("nonsense").Class != Internal {
		t.Error("an unknown class is not treated as a defect")
	}
}

var update = flag.Bool("update", false, "rewrite the table in docs/failures.md")

// policyTable draws Policies as docs/failures.md has them.
func policyTable() string {
	var b strings.Builder
	b.WriteString("| class | what it means | retried, on what | how often | again | what the operator sees | what serves meanwhile |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, p := range Policies {
		again := "no"
		if p.Again {
			again = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", p.Class, p.Means, p.Retried, p.Times, again, p.Seen, p.Serves)
	}
	return b.String()
}

func TestTheDocumentedPolicyIsTheOneInCode(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "docs", "failures.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.Index(page, []byte("| class |"))
	if begin < 0 {
		t.Fatal("docs/failures.md has no table of classes")
	}
	end := begin + bytes.Index(page[begin:], []byte("\n\n")) + 1
	if *update {
		page = append(page[:begin:begin], append([]byte(policyTable()), page[end:]...)...)
		if err := os.WriteFile(path, page, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := string(page[begin:end]); got != policyTable() {
		t.Errorf("docs/failures.md differs from refit.Policies; go test ./pkg/refit -run Documented -update writes\n%s", policyTable())
	}
}
