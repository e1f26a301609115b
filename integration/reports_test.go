package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// report is one row of that page.
type report struct {
	report string
	kind   string
	tests  []string // "folder Test"
}

// reports lists what systems of this kind got wrong in public about time, order and failure, and which tests hold each
// *kind* of it here, as folder and test. The left column is that of the page that the reports were collected on.
var reports = []report{
	{"trl #6796, #6797, #6913", "every wait ends, and says who was waited for", []string{
		"pkg/messages TestEveryWaitEndsAndNamesWhoWasWaitedFor", "integration TestVersionNeverCompletes", "integration TestRankZeroNeverComes",
		"internal/trainer TestAwaitReceiversNamesTheLate",
	}},
	{"trl #7103", "no rank needs another one to publish its part", []string{
		"integration TestPublisherKilledInMidPublish", "integration TestPublisherStoppedAtEachStage",
	}},
	{"prime-rl #3016, #1667", "who comes late takes the newest version, and skips by name", []string{
		"pkg/refit TestALateReceiverTakesTheNewest", "pkg/messages TestLateReceiverFindsTheNewestAndNamesWhatItSkips",
		"pkg/refit TestEventsOfLeasesAndVersions",
	}},
	{"prime-rl #3599", "deadlines follow progress; an apply may be repeated", []string{
		"pkg/refit TestASlowSourceMayTakeAsLongAsItGetsOn", "pkg/refit TestAStalledSourceEndsByTheDeadlineAndIsNamed",
		"pkg/refit TestRepeatingAVersionIsHarmless", "pkg/refit TestAnUnknownEndIsSettledLater",
	}},
	{"NeMo-RL #2444, #3274, slime #2104, #2119", "stage whole, verify, then apply; a base is what all have", []string{
		"pkg/refit TestStageTouchesNothingThatServes", "pkg/refit TestFaultAtEachStage", "pkg/refit TestTheBaseIsWhatServes",
		"pkg/messages TestPartialVersionIsStagedOnItsExactBaseOnly", "pkg/messages TestKeepEveryWaitsForTheSlowestReader",
	}},
	{"vllm #57854", "what fails before apply leaves the old version serving", []string{
		"pkg/refit TestFaultAtEachStage", "pkg/refit TestARefusedInstallLeavesTheOldVersion", "integration TestReceiverKilledAtEachStage",
	}},
	{"tokenspeed #672", "a version is shown as served when every rank has it, not before", []string{
		"pkg/refit TestARoundCommitsWithTheLastYes", "pkg/refit TestIfOneRefusesAllReturn", "integration TestReceiverKilledAtEachStage",
		"integration TestAMemberKilledAtEachPointOfTheRound",
	}},
	{"lmdeploy #4917, miles #2783, sglang #27886", "caches of the engine end with the version", []string{
		"pkg/refit/install/sglang TestUnflushed", "pkg/refit/install/sglang TestStaysUnflushed",
	}},
	{"NeMo-RL #2180", "apply only when the engine's owner says so, and not while others hold the engine", []string{
		"pkg/refit TestStageTouchesNothingThatServes", "pkg/refit/install/vllm TestPausedBySomebodyElse",
		"pkg/refit TestVersionsAppliedAtOnceNeverGoBackwards",
	}},
	{"prime-rl #2389", "endpoints have an incarnation, and the newest one wins", []string{
		"pkg/messages TestPublishAgainWithAnotherEndpoint", "pkg/rdma TestAnotherLifeBeginsAfresh", "integration TestPublisherKilledAtEachStage",
	}},
	{"modelexpress #555, #575", "a source that failed is left alone, probed and read again", []string{
		"pkg/rdma TestBreakerOpensProbesAndCloses", "pkg/refit TestABreakerClosesAgain", "pkg/refit TestASourceThatFailedIsLeftAloneOverVersions",
	}},
	{"ray #65905, #65962", "memory is not taken away under a transfer", []string{
		"pkg/rdma TestCloseRefusesWhileHeld", "pkg/rdma/internal/registry TestRegionIsHeldUntilWithdrawnAndUnused",
		"pkg/refit TestMemoryOfATransferThatNeverEndedIsNotUsedAgain", "pkg/refit TestABufferIsNotReusedUnderAReader",
	}},
	{"Mooncake #2246", "what a server has lost is announced again", []string{
		"integration TestServerLosesData", "integration TestServerRestartedAtEachStage",
	}},
	{"PipelineRL (source)", "success means that every rank's install answered", []string{
		"pkg/refit TestIfOneRefusesAllReturn", "pkg/refit TestTheEngineGoesBackWhenTheNameCannotBeFlipped", "pkg/refit TestNoInterleavingSplitsAnEngine",
		"integration TestAMemberThatRefusesKeepsBothBack", "integration TestAnEngineOfTwoPrograms",
	}},
}

// TestEachReportHasItsTests looks up every test of the list, and every row of the page in the list.
func TestEachReportHasItsTests(t *testing.T) {
	t.Parallel()
	for _, r := range reports {
		if len(r.tests) == 0 || r.kind == "" {
			t.Errorf("%s: no test, or no kind", r.report)
		}
		for _, test := range r.tests {
			folder, name, _ := strings.Cut(test, " ")
			if !hasTest(t, filepath.Join("..", folder), name) {
				t.Errorf("%s: there is no %s in %s", r.report, name, folder)
			}
		}
	}
	page, err := os.ReadFile("../../shared/faults.md")
	if err != nil {
		t.Skipf("the page of reports is not here: %v", err)
	}
	_, section, found := strings.Cut(string(page), "\n## Time, order, failure\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(section, -1)
	if !found || len(rows) < 3 {
		t.Fatal("the page has no such section")
	}
	for _, row := range rows[1:] { // after the head
		name := strings.TrimSpace(row[1])
		listed := slices.ContainsFunc(reports, func(r report) bool { return r.report == name })
		if strings.Trim(name, "- ") != "" && !listed {
			t.Errorf("%s is not in the list", name)
		}
	}
}

// hasTest says whether a folder's tests have a function of that name.
func hasTest(t *testing.T, folder, name string) bool {
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
		if strings.Contains(string(b), fmt.Sprintf("\nfunc %s(t *testing.T) {", name)) {
			return true
		}
	}
	return false
}
