package rdmabench

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// costReport is a row of the page of reports.
type costReport struct {
	report, kind string
	held         []string
}

// costReports lists what such systems were reported to waste, and which tests and benchmarks hold each *kind* of it here, as
// folder and function. The first column is that of the page that the reports were collected on.
var costReports = []costReport{
	{"nixl #77, #1074", "arenas are registered once, whole", []string{"internal/rdmabench BenchmarkRegistrationOfThousandTensors"}},
	{"nixl #176, #135", "many runs are few segments, posted at once", []string{
		"internal/rdmabench BenchmarkFifteenThousandRuns", "pkg/rdma/internal/strided TestChunksJoinRunsAndKeepBytesAndOrder",
	}},
	{"verl #6733, sglang #8076, #10597, #4446", "memory beyond the arenas is the budget, and stays flat over refits", []string{
		"pkg/refit TestMemoryBeyondTheArenasIsTheBudget", "pkg/refit TestManyRefitsLeaveMemoryAndDescriptorsFlat", "pkg/rdma TestDescriptorsStayFlat",
	}},
	{"NeMo-RL #3280", "arenas keep their addresses", []string{"pkg/refit/arena TestAddressesAreStable", "pkg/refit/arena TestOffsetsDoNotDependOnTheVersion"}},
	{"verl #7167, #7262", "all ranks serve; sources are chosen by load", []string{"pkg/plan TestReplicasReadOnce", "pkg/plan TestCostsChooseAmongReplicas", "pkg/plan TestBatchesKeepEveryRankBusy"}},
	{"modelexpress (source)", "a slice is verified without the rest of its tensor", []string{
		"pkg/refit TestAFlippedBitIsFoundWhereverSlicesAreCut", "internal/rdmabench TestFlippedBitsAreFoundLocatedAndMended",
	}},
	{"vllm #52689, miles #405, verl #6666", "every byte is verified, cheaply", []string{
		"pkg/refit BenchmarkStage", "internal/tiles BenchmarkDigestOfRows", "pkg/rdma/landing TestWhatIsLookedAtHasCome",
	}},
}

// TestEachCostHasItsTestOrBenchmark looks up every function of the list, and every row of the page in the list.
func TestEachCostHasItsTestOrBenchmark(t *testing.T) {
	t.Parallel()
	for _, r := range costReports {
		for _, held := range r.held {
			folder, name, _ := strings.Cut(held, " ")
			if !declares(t, filepath.Join("../..", folder), name) {
				t.Errorf("%s, %s: there is no %s in %s", r.report, r.kind, name, folder)
			}
		}
	}
	page, err := os.ReadFile("../../../shared/faults.md")
	if err != nil {
		t.Skipf("the page of reports is not here: %v", err)
	}
	_, section, found := strings.Cut(string(page), "\n## Cost\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(section, -1)
	if !found || len(rows) < 3 {
		t.Fatal("the page has no such section")
	}
	for _, row := range rows[1:] { // after the head
		name := strings.TrimSpace(row[1])
		listed := slices.ContainsFunc(costReports, func(r costReport) bool { return r.report == name })
		if strings.Trim(name, "- ") != "" && !listed {
			t.Errorf("%s is not in the list", name)
		}
	}
}

// declares says whether a folder's tests declare a function.
func declares(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
