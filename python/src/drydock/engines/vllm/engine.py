"""The back end: vLLM's WeightTransferEngine over arena files. One object in each worker."""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader.reload.inplace import reload_weights

from drydock.engines import arenafile, joined, session
from drydock.engines.arenafile import ArenaError, TensorType
from drydock.engines.session import Announcement, Session
from drydock.engines.vllm import layout, window, worker
from drydock.engines.vllm.capturing import Capturing

log = logging.getLogger(__name__)


@dataclass
class Init(WeightTransferInitInfo):
    """Who updates, and from where."""

    root: str = ""  # only files below it are opened
    owner: str = ""  # one at a time
    take_over: bool = False  # from another owner
    problem: str = ""  # set where the call could not be understood


@dataclass
class Update(Announcement, WeightTransferUpdateInfo):
    """The announcement of one rank's file, as vLLM wants it typed."""


class DrydockEngine(WeightTransferEngine[Init, Update]):
    """Takes a version into the model of one worker. See the package's text for the order of calls."""

    init_info_cls, update_info_cls = Init, Update
    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: torch.nn.Module) -> None:
        super().__init__(config, vllm_config, device, model)
        self.session = Session()
        self._want: dict[str, TensorType] | None = None
        self._capturing: Capturing | None = None
        worker.mix_in()

    # Called by vLLM. None of these may raise: see the package's text.

    def parse_init_info(self, init_dict: dict[str, Any]) -> Init:
        """As the base class, but a call that can't be understood is told by the status."""
        try:
            return super().parse_init_info(init_dict)
        except Exception as e:
            return Init(problem=session.describe(e))

    def init_transfer_engine(self, init_info: Init) -> None:
        """Claims the engine for one owner."""
        with self._noting(self.session.refuse):
            if init_info.problem:
                raise ArenaError(init_info.problem)
            self.session.claim(init_info.root, init_info.owner, init_info.take_over)

    def start_weight_update(self) -> None:
        """Begins an update. Touches nothing."""
        self.session.start()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Checks this rank's file. Touches nothing. The base class would wait for an accelerator here."""
        with self._noting(self.session.refuse):
            self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: Update) -> None:
        """The check itself; raises."""
        with joined.span("engine.stage", update_info.traceparent, **self._attributes(update_info)):
            self.session.stage(update_info, get_tensor_model_parallel_rank(), self.wanted())

    def finish_weight_update(self) -> None:
        """Applies what is staged; nothing where nothing is. Afterwards the rank is applied, undone or broken."""
        a = self.session.staged
        if a is None:
            return
        serving = self.session.serving
        if serving is not None and serving.key == a.key:
            self.session.applied(a)  # the same version again: its bytes are there
            return
        with joined.span("engine.apply", a.traceparent, **self._attributes(a)):
            self._apply(a)

    def shutdown(self) -> None:
        """Lets go of the owner. What serves goes on serving."""
        self.session.release()

    # Called by the worker's methods.

    def undo(self, label: str) -> None:
        """Goes back from version `label` to what served before it, because another rank could not go forward.

        Nothing happens on a rank that does not serve it, or whose update was closed.
        """
        s = self.session
        forward = s.in_hand == label and s.serving is not None and s.serving.label == label
        if not forward and s.state != session.BROKEN:
            return
        try:
            self._restore(s.previous)
        except window.Torn as e:
            _let_go(e)
            s.broke(e)
        except Exception as e:  # before the window: what served still does
            s.error = f"can't go back from {label}: {session.describe(e)}"
        else:
            s.went_back()

    def capturing(self) -> Capturing:
        """The capture of this server's model."""
        if self._capturing is None:
            parallel = self.parallel_config
            self._capturing = Capturing(self._default_model_config.model, parallel.tensor_parallel_size, parallel.enable_expert_parallel)
        return self._capturing

    def wanted(self) -> dict[str, TensorType]:
        """Names, types and shapes of this rank's parameters. Constant as long as the model lives."""
        if self._want is None:
            self._want = layout.wanted(self.model)
        return self._want

    def _apply(self, a: Announcement) -> None:
        s = self.session
        whole = s.serving if s.state != session.BROKEN else s.previous  # what to go back to
        try:
            self._write(a)
            s.applied(a)
        except window.Torn as e:
            log.exception("version %s could not be applied", a.label)
            _let_go(e)
            try:
                self._restore(whole)
                s.serving, s.previous = whole, whole
                s.undone(e)
            except Exception as back:
                log.exception("nor could what served before it")
                _let_go(back)
                s.broke(RuntimeError(f"{session.describe(e)}; going back: {session.describe(back)}"))
        except Exception as e:  # before the window: nothing was touched
            log.exception("version %s could not be opened", a.label)
            (s.broke if s.state == session.BROKEN else s.undone)(e)

    def _write(self, a: Announcement) -> None:
        """Maps the rank's file and copies from the mapping. The file is checked again: it may have changed since the stage."""
        begun = time.perf_counter()
        path = arenafile.resolve(a.files[0], self.session.root)
        have = arenafile.read(path)
        session.check_label(have, a)
        if text := arenafile.differences(have.tensors, self.wanted()):
            raise ArenaError(f"{path}: {text}")
        with safe_open(path, "pt") as f:
            tensors = {name: f.get_tensor(name) for name in have.tensors}  # views of the mapping
        mapped = time.perf_counter()
        window.replace(self.model, self.model_config, tensors)
        nbytes = sum(t.nbytes for t in tensors.values())
        self.session.timing = {"map": mapped - begun, "replace": time.perf_counter() - mapped, "nbytes": float(nbytes)}

    def _restore(self, a: Announcement | None) -> None:
        """Writes an older version again: from its arena, which a receiver keeps until a version later, or the checkpoint."""
        if a is not None:
            self._write(a)
            return
        try:
            reload_weights(self.vllm_config, self.model, None, None, True)
            window.repack(self.model, layout.aliases(self.model))
        except BaseException as e:
            window.put_back(self.model)
            raise window.Torn(f"{type(e).__name__}: {e}") from e

    @contextlib.contextmanager
    def _noting(self, note: Callable[[BaseException], None]) -> Any:
        """Runs the body; what it raises becomes part of the status."""
        try:
            yield
        except Exception as e:
            log.warning("%s", session.describe(e))
            note(e)

    def _attributes(self, a: Announcement) -> dict[str, Any]:
        return {"drydock.model": a.model, "drydock.run": a.run, "drydock.version": a.version, "drydock.rank": a.rank}


def _let_go(e: BaseException | None) -> None:
    """Frames of a traceback keep the tensors that they had in hand, and these keep the arena mapped: clears them.

    A receiver can't write again to a file that is mapped anywhere, and a logging handler may keep the traceback for long.
    """
    seen: set[int] = set()
    while e is not None and id(e) not in seen:
        seen.add(id(e))
        traceback.clear_frames(e.__traceback__)
        e = e.__cause__ or e.__context__
