"""Methods of vLLM's workers that `collective_rpc` can call, one answer for each rank.

They are mixed into the worker's class by the back end when it is made, as vLLM itself does with a class that is named by
`--worker-extension-cls`; naming this one there does no harm. Each answer repeats the caller's nonce: an engine whose
answers have been shifted by an exception of somebody else's call is found out by it.
"""

from __future__ import annotations

import os
from typing import Any

# Of the calls and answers between the Go side and these methods.
PROTOCOL = 1


class DrydockWorker:
    """Mixed into vLLM's Worker. No method raises."""

    def drydock_status(self, nonce: str = "") -> dict[str, Any]:
        """What this rank serves, and how its update stands."""
        try:
            return self._drydock_answer(nonce)
        except Exception as e:
            return {"protocol": PROTOCOL, "nonce": nonce, "state": "", "error": f"{type(e).__name__}: {e}"}

    def drydock_abort(self, nonce: str = "") -> dict[str, Any]:
        """Gives the update up; finish_weight_update must follow where one is open."""
        return self._drydock_do(nonce, lambda engine: engine.session.abort())

    def drydock_undo(self, nonce: str = "", label: str = "") -> dict[str, Any]:
        """Goes back from version `label`, or from no version, to what served before."""
        return self._drydock_do(nonce, lambda engine: engine.undo(label))

    def drydock_done(self, nonce: str = "") -> dict[str, Any]:
        """The update is closed."""
        return self._drydock_do(nonce, lambda engine: engine.session.done())

    def drydock_layout(self, nonce: str = "") -> dict[str, Any]:
        """Names, types and shapes of this rank's parameters at load-time layout, and aliases."""
        from drydock.engines.vllm import layout

        answer = self.drydock_status(nonce)
        try:
            engine = self.weight_transfer_engine  # type: ignore[attr-defined]
            answer["params"] = {name: [dtype, list(shape)] for name, (dtype, shape) in engine.wanted().items()}
            answer["alias"] = layout.aliases(engine.model)
        except Exception as e:
            answer["error"] = f"{type(e).__name__}: {e}"
        return answer

    def drydock_capture(self, nonce: str = "") -> dict[str, Any]:
        """Which file holds the capture of this model; the first rank makes it where there is none. Ask until it is ready."""
        answer = self.drydock_status(nonce)
        try:
            if self.rank == 0:  # type: ignore[attr-defined]
                answer.update(self.weight_transfer_engine.capturing().ask())  # type: ignore[attr-defined]
        except Exception as e:
            answer.update({"capture": "failed", "error": f"{type(e).__name__}: {e}"})
        return answer

    def _drydock_do(self, nonce: str, act: Any) -> dict[str, Any]:
        try:
            from vllm.config import set_current_vllm_config

            with set_current_vllm_config(self.vllm_config):  # type: ignore[attr-defined]
                act(self.weight_transfer_engine)  # type: ignore[attr-defined]
        except Exception as e:
            return {**self.drydock_status(nonce), "error": f"{type(e).__name__}: {e}"}
        return self.drydock_status(nonce)

    def _drydock_answer(self, nonce: str) -> dict[str, Any]:
        from vllm import __version__
        from vllm.distributed.parallel_state import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size

        return {
            "protocol": PROTOCOL,
            "nonce": nonce,
            "engine": f"vllm {__version__}",
            "pid": os.getpid(),
            "rank": self.rank,  # type: ignore[attr-defined]
            "tp_rank": get_tensor_model_parallel_rank(),
            "tp_size": get_tensor_model_parallel_world_size(),
            "open": bool(getattr(self, "_weight_update_active", False)),
            **self.weight_transfer_engine.session.status(),  # type: ignore[attr-defined]
        }


def mix_in() -> None:
    """Gives vLLM's workers the methods, unless they have them."""
    from vllm.v1.worker.gpu_worker import Worker

    if not hasattr(Worker, "drydock_status"):
        Worker.__bases__ += (DrydockWorker,)
