package integration

import (
	"testing"

	"github.com/drydock-rl/drydock/internal/reportstest"
)

// reports lists what systems of this kind got wrong in public about time, order and failure, and which tests hold each
// *kind* of it here, as folder and test. The left column is that of the page that the reports were collected on.
var reports = []reportstest.Row{
	{Report: "trl #6796, #6797, #6913", Kind: "every wait ends, and says who was waited for", Held: []string{
		"pkg/messages TestEveryWaitEndsAndNamesWhoWasWaitedFor", "integration TestVersionNeverCompletes", "integration TestRankZeroNeverComes",
		"internal/trainer TestAwaitReceiversNamesTheLate",
	}},
	{Report: "trl #7103", Kind: "no rank needs another one to publish its part", Held: []string{
		"integration TestPublisherKilledInMidPublish", "integration TestPublisherStoppedAtEachStage",
		"pkg/messages TestNoRankWaitsForAnotherToPublish",
	}},
	{Report: "prime-rl #3016, #1667", Kind: "who comes late takes the newest version, and skips by name", Held: []string{
		"pkg/refit TestALateReceiverTakesTheNewest", "pkg/messages TestLateReceiverFindsTheNewestAndNamesWhatItSkips",
		"pkg/refit TestEventsOfLeasesAndVersions",
	}},
	{Report: "prime-rl #3599", Kind: "deadlines follow progress; an apply may be repeated", Held: []string{
		"pkg/refit TestASlowSourceMayTakeAsLongAsItGetsOn", "pkg/refit TestAStalledSourceEndsByTheDeadlineAndIsNamed",
		"pkg/refit TestRepeatingAVersionIsHarmless", "pkg/refit TestAnUnknownEndIsSettledLater",
	}},
	{Report: "NeMo-RL #2444, #3274, slime #2104, #2119", Kind: "stage whole, verify, then apply; a base is what all have", Held: []string{
		"pkg/refit TestStageTouchesNothingThatServes", "pkg/refit TestFaultAtEachStage", "pkg/refit TestTheBaseIsWhatServes",
		"pkg/messages TestPartialVersionIsStagedOnItsExactBaseOnly", "pkg/messages TestKeepEveryWaitsForTheSlowestReader",
	}},
	{Report: "vllm #57854", Kind: "what fails before apply leaves the old version serving", Held: []string{
		"pkg/refit TestFaultAtEachStage", "pkg/refit TestARefusedInstallLeavesTheOldVersion", "integration TestReceiverKilledAtEachStage",
	}},
	{Report: "tokenspeed #672", Kind: "a version is shown as served when every rank has it, not before", Held: []string{
		"pkg/refit TestARoundCommitsWithTheLastYes", "pkg/refit TestIfOneRefusesAllReturn", "integration TestReceiverKilledAtEachStage",
		"integration TestAMemberKilledAtEachPointOfTheRound",
	}},
	{Report: "lmdeploy #4917, miles #2783, sglang #27886", Kind: "caches of the engine end with the version", Held: []string{
		"pkg/refit/install/sglang TestUnflushed", "pkg/refit/install/sglang TestStaysUnflushed",
	}},
	{Report: "NeMo-RL #2180", Kind: "apply only when the engine's owner says so, and not while others hold the engine", Held: []string{
		"pkg/refit TestStageTouchesNothingThatServes", "pkg/refit/install/vllm TestPausedBySomebodyElse",
		"pkg/refit TestVersionsAppliedAtOnceNeverGoBackwards",
	}},
	{Report: "prime-rl #2389", Kind: "endpoints have an incarnation, and the newest one wins", Held: []string{
		"pkg/messages TestPublishAgainWithAnotherEndpoint", "pkg/rdma TestAnotherLifeBeginsAfresh", "integration TestPublisherKilledAtEachStage",
	}},
	{Report: "modelexpress #555, #575", Kind: "a source that failed is left alone, probed and read again", Held: []string{
		"pkg/rdma TestBreakerOpensProbesAndCloses", "pkg/refit TestABreakerClosesAgain", "pkg/refit TestASourceThatFailedIsLeftAloneOverVersions",
	}},
	{Report: "ray #65905, #65962", Kind: "memory is not taken away under a transfer", Held: []string{
		"pkg/rdma TestCloseRefusesWhileHeld", "pkg/rdma/internal/registry TestRegionIsHeldUntilWithdrawnAndUnused",
		"pkg/refit TestMemoryOfATransferThatNeverEndedIsNotUsedAgain", "pkg/refit TestABufferIsNotReusedUnderAReader",
	}},
	{Report: "Mooncake #2246", Kind: "what a server has lost is announced again", Held: []string{
		"integration TestServerLosesData", "integration TestServerRestartedAtEachStage",
	}},
	{Report: "PipelineRL (source)", Kind: "success means that every rank's install answered", Held: []string{
		"pkg/refit TestIfOneRefusesAllReturn", "pkg/refit TestTheEngineGoesBackWhenTheNameCannotBeFlipped", "pkg/refit TestNoInterleavingSplitsAnEngine",
		"integration TestAMemberThatRefusesKeepsBothBack", "integration TestAnEngineOfTwoPrograms",
	}},
}

// TestEachReportHasItsTests looks up every test of the list, and every row of the page in the list.
func TestEachReportHasItsTests(t *testing.T) {
	t.Parallel()
	reportstest.Check(t, "..", "Time, order, failure", reports)
}
