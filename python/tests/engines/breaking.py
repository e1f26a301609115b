"""A worker extension for tests: makes the next applies fail in the middle, as memory that runs out would."""

from typing import Any


class BreakingWorker:
    """Mixed into vLLM's worker by --worker-extension-cls."""

    def test_break(self, rank: int = 0, applies: int = 1) -> dict[str, Any]:
        """The next so many applies of one rank fail after every second layer has its new weights."""
        from drydock.engines.vllm import window

        if self.rank == rank:  # type: ignore[attr-defined]
            _break(window, applies)
        return {"rank": self.rank}  # type: ignore[attr-defined]

    def test_mapped(self) -> dict[str, Any]:
        """Arena files that this worker still maps."""
        with open("/proc/self/maps") as f:
            return {"mapped": sorted({line.split(None, 5)[5].strip() for line in f if "rank-" in line})}

    def test_meta(self) -> dict[str, Any]:
        """Parameters that were left on the meta device."""
        model = self.model_runner.get_model()  # type: ignore[attr-defined]
        return {"meta": [name for name, p in model.named_parameters() if p.is_meta]}


def _break(window: Any, applies: int) -> None:
    real = window.default_weight_loader
    left = {"applies": applies, "calls": 0}

    def failing(param: Any, loaded: Any) -> None:
        left["calls"] += 1
        if left["calls"] == 40:  # of some sixty
            left["calls"] = 0
            left["applies"] -= 1
            if left["applies"] == 0:
                window.default_weight_loader = real
            raise MemoryError("a fault of the test")
        real(param, loaded)

    failing.__name__ = real.__name__
    window.default_weight_loader = failing
