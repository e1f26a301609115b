"""vLLM's model for one rank of a tensor-parallel group that isn't there.

torch has a process group whose collectives do nothing. With it vLLM builds the model of any rank in one process; on the
meta device it needs no memory for its weights either. Nothing of this model can compute, and nothing needs to.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.testing._internal.distributed.fake_pg import FakeStore

from drydock.capture import recorder, schema
from drydock.capture.recorder import CaptureError
from drydock.engines.vllm.layout import DTYPE_NAMES

TORCH_TYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


def engine() -> str:
    """The engine whose loaders are recorded, with versions: a capture holds for no other."""
    import vllm

    return f"vllm {vllm.__version__}, torch {torch.__version__}"


def configuration(folder: pathlib.Path, tp: int, ep: bool) -> Any:
    """vLLM's configuration for the folder, as the server would make it."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.models import registry

    args = EngineArgs(
        model=str(folder), tokenizer=str(folder), skip_tokenizer_init=True, load_format="dummy", enforce_eager=True,
        tensor_parallel_size=tp, enable_expert_parallel=ep and tp > 1, distributed_executor_backend="mp" if tp > 1 else None,
    )  # fmt: skip
    # vLLM looks at model classes in another process, to keep this one free of CUDA: ten seconds that nobody needs here.
    with mock.patch.object(registry, "_run_in_subprocess", lambda look: look()):
        return args.create_engine_config()


@contextlib.contextmanager
def group(config: Any, tp: int, rank: int) -> Iterator[None]:
    """vLLM believes to be rank `rank` of `tp`."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state as ps

    new_group = torch.distributed.new_group
    make = ps.init_model_parallel_group

    def quiet(*args: Any, **kwargs: Any) -> Any:  # queues and communicators would talk to ranks that aren't there
        return make(*args, **{**kwargs, "use_message_queue_broadcaster": False, "use_device_communicator": False})

    torch.distributed.init_process_group("fake", rank=rank, world_size=tp, store=FakeStore())
    try:
        with (
            set_current_vllm_config(config),
            mock.patch.object(torch.distributed, "new_group", lambda ranks=None, **_: new_group(ranks, backend="fake")),
            mock.patch.object(ps, "init_model_parallel_group", quiet),
            mock.patch.object(ps, "in_the_same_node_as", lambda *_, **__: [True] * tp),
        ):
            ps.init_distributed_environment(tp, rank, "env://", rank, "fake")
            ps.initialize_model_parallel(tp, backend="fake")
            yield
    finally:
        ps.destroy_model_parallel()
        ps.destroy_distributed_environment()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def case(config: Any, sources: list[schema.Source], tp: int, rank: int, ep: bool, device: str = "meta") -> schema.Case:
    """Builds one rank's model and records its loader."""
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    with group(config, tp, rank), set_default_torch_dtype(config.model_config.dtype):
        config.compilation_config.static_forward_context.clear()  # names of layers, of the rank before
        with torch.device(device):
            model = initialize_model(config)
        tensors = [(s.name, torch.empty(s.shape, dtype=TORCH_TYPES[s.dtype], device=device)) for s in sources]
        found, now = recorder.record(tensors, _params(model), model.load_weights, lambda: _params(model).items())
        out = recorder.case_of(found, now, len(sources), DTYPE_NAMES)
    out.arch, out.tp, out.rank, out.ep = config.model_config.architecture, tp, rank, ep
    return out


def _params(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Every name of every parameter, the names that share one included."""
    return dict(model.named_parameters(remove_duplicate=False))


def capture(folder: pathlib.Path, sources: list[schema.Source], shapes: list[tuple[int, int, bool]], family: str) -> schema.Capture:
    """Records the given (tp, rank, ep), on the meta device where the model allows it, else in memory."""
    cases = []
    config, made = None, (0, False)
    for tp, rank, ep in shapes:
        if made != (tp, ep):
            config, made = configuration(folder, tp, ep), (tp, ep)
        try:
            cases.append(case(config, sources, tp, rank, ep))
        except CaptureError:
            raise
        except (NotImplementedError, RuntimeError, ValueError, AssertionError) as e:
            if "meta" not in str(e).lower():
                raise
            cases.append(case(config, sources, tp, rank, ep, "cpu"))
    hf = config.model_config.hf_config if config else None
    given = {k: v for k, v in (hf.to_diff_dict() if hf else {}).items() if v is not None}
    return schema.Capture(engine(), family, getattr(hf, "model_type", ""), given, sources, cases)
