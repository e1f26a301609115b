package rdmabench

import (
	"testing"

	"github.com/drydock-rl/drydock/internal/reportstest"
)

// costReports lists what such systems were reported to waste, and which tests and benchmarks hold each *kind* of it here, as
// folder and function. The first column is that of the page that the reports were collected on.
var costReports = []reportstest.Row{
	{Report: "nixl #77, #1074", Kind: "arenas are registered once, whole", Held: []string{"internal/rdmabench BenchmarkRegistrationOfThousandTensors"}},
	{Report: "nixl #176, #135", Kind: "many runs are few segments, posted at once", Held: []string{
		"internal/rdmabench BenchmarkFifteenThousandRuns", "pkg/rdma/internal/strided TestChunksJoinRunsAndKeepBytesAndOrder",
	}},
	{Report: "verl #6733, sglang #8076, #10597, #4446", Kind: "memory beyond the arenas is the budget, and stays flat over refits", Held: []string{
		"pkg/refit TestMemoryBeyondTheArenasIsTheBudget", "pkg/refit TestManyRefitsLeaveMemoryAndDescriptorsFlat", "pkg/rdma TestDescriptorsStayFlat",
	}},
	{Report: "NeMo-RL #3280", Kind: "arenas keep their addresses", Held: []string{"pkg/refit/arena TestAddressesAreStable", "pkg/refit/arena TestOffsetsDoNotDependOnTheVersion"}},
	{Report: "verl #7167, #7262", Kind: "all ranks serve; sources are chosen by load", Held: []string{"pkg/plan TestReplicasReadOnce", "pkg/plan TestCostsChooseAmongReplicas", "pkg/plan TestBatchesKeepEveryRankBusy"}},
	{Report: "modelexpress (source)", Kind: "a slice is verified without the rest of its tensor", Held: []string{
		"pkg/refit TestAFlippedBitIsFoundWhereverSlicesAreCut", "internal/rdmabench TestFlippedBitsAreFoundLocatedAndMended",
	}},
	{Report: "vllm #52689, miles #405, verl #6666", Kind: "every byte is verified, cheaply", Held: []string{
		"pkg/refit BenchmarkStage", "internal/tiles BenchmarkDigestOfRows", "pkg/rdma/landing TestWhatIsLookedAtHasCome",
	}},
}

// TestEachCostHasItsTestOrBenchmark looks up every function of the list, and every row of the page in the list.
func TestEachCostHasItsTestOrBenchmark(t *testing.T) {
	t.Parallel()
	reportstest.Check(t, "../..", "Cost", costReports)
}
