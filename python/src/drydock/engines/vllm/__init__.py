"""Drydock's weight transfer back end for vLLM.

vLLM calls `register` in each of its processes (entry point `vllm.general_plugins`). The one flag that a server needs is

    --weight-transfer-config '{"backend": "drydock"}'

and dev mode (`VLLM_SERVER_DEV_MODE=1`), without which vLLM has no calls to update weights.

The calls of an update, by the Go side (`pkg/refit/install/vllm`): init once, then start, update (each rank checks its
file), pause, finish (each rank applies), version label, prefix cache, resume. After each of them the workers are asked
for their status by `collective_rpc`: none of them ever raises, because an exception in one worker of a tensor-parallel
group makes vLLM give all later answers to the wrong calls.
"""

from __future__ import annotations

BACKEND = "drydock"


def register() -> None:
    """Adds the back end to vLLM's factory. May be repeated; loads nothing of the engine yet."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, "drydock.engines.vllm.engine", "DrydockEngine")
