"""Publishing tensors where they lie, without a copy: for device memory, or where there is no room for two snapshots.

    publisher = InPlacePublisher("org/model", model)
    publisher.fence(optimizer)          # its steps wait until nobody reads
    for step in steps:
        ...
        optimizer.step()
        publisher.publish(step)         # forward and backward of the next step go on while receivers read

The trainer's own process registers the memory with NIXL and serves the reads; the sidecar publishes the version and keeps the
leases. There is one copy of everything, so a version must be withdrawn, and its readers be gone, before a value changes.
Receivers need NIXL too. The memory dies with this process: then its readers fail, and the sidecar ends the version.
"""

from __future__ import annotations

import importlib
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol

from . import copying, errors
from .publisher import Publication, Publisher
from .shards import SIZES, Shard

log = logging.getLogger("drydock")

#: One span of memory to register: address, bytes, kind of device ("cpu", "cuda"), its index.
Span = tuple[int, int, str, int]


class Agent(Protocol):
    """What is needed of NIXL: memory registered in order, and the agent's description of itself."""

    name: str

    def register(self, spans: Sequence[Span]) -> None: ...
    def metadata(self) -> bytes: ...
    def close(self) -> None: ...


class NixlAgent:
    """An agent by NIXL's own Python bindings (`pip install nixl`)."""

    def __init__(self, backends: Sequence[str] = ("UCX",), api: Any = None) -> None:
        if api is None:
            api = importlib.import_module("nixl._api")
        self.name = f"drydock-{uuid.uuid4().hex[:16]}"
        self._agent = api.nixl_agent(self.name, api.nixl_agent_config(backends=list(backends)))
        self._registered: list[Any] = []

    def register(self, spans: Sequence[Span]) -> None:
        """One list for each kind of memory; the order of the spans is that of the regions, which NIXL doesn't need."""
        for kind, segment in (("cpu", "DRAM"), ("cuda", "VRAM")):
            some = [(address, nbytes, index, "") for address, nbytes, k, index in spans if k == kind]
            if some:
                self._registered.append(self._agent.register_memory(some, segment))

    def metadata(self) -> bytes:
        return bytes(self._agent.get_agent_metadata())

    def close(self) -> None:
        for some in self._registered:
            self._agent.deregister_memory(some)
        self._registered = []


class InPlacePublisher(Publisher):
    """A `Publisher` that copies nothing. Its arguments are the same, except that nothing is cast.

    agent: makes the NIXL agent; default `NixlAgent`.
    digests: gives xxh3-64 of the tiles of the shards that are digested, little-endian: shard by shard, the tiles of one in
        row-major order. It is called with the sidecar's answer to the attach (`grids` has the extent of a tile for each
        shard, `tiles` is how many there are together) and with the shards, both of those that are digested. Without it the version has no
        digests, and receivers that insist on them refuse it.
    digested: with digests, which tensors have some: patterns of names, or a function of the shard; default all. Bytes of the
        others count as not verified at the receivers.
    """

    def __init__(
        self,
        model: str,
        tensors: Any,
        *,
        agent: Callable[[], Agent] = NixlAgent,
        digests: Callable[[dict[str, Any], Sequence[Shard]], bytes] | None = None,
        digested: Sequence[str] | Callable[[Shard], bool] | None = None,
        **more: Any,
    ) -> None:
        if more.get("dtype") is not None:
            raise ValueError("what is read in place can't be cast")
        if digested is not None and digests is None:
            raise ValueError("digested says which tensors have digests, and nothing makes any: give digests too")
        self._make, self._digests, self._digested = agent, digests, digested
        self._agent: Agent | None = None
        self._registered: list[Span] = []
        self._fences: list[Any] = []
        self._answer: dict[str, Any] = {}
        self._standing: int | None = None
        super().__init__(model, tensors, kind="external", **more)

    def fence(self, optimizer: Any) -> None:
        """Has an optimizer's steps wait until the version that stands is withdrawn and not read any more.

        Where readers don't let go within the timeout, `Held` is raised before the step has changed anything.
        """
        self._fences.append(optimizer.register_step_pre_hook(lambda *_: self.withdraw()))

    def withdraw(self) -> None:
        """Ends the version that stands, if one does, and waits for its readers."""
        if self._standing is not None:
            self.wait_drained(self._standing)
            self._standing = None

    def publish(
        self, version: int, *, wait: bool = False, traceparent: str | None = None, changed: Iterable[str] | None = None
    ) -> Publication:
        """Publishes the tensors as they lie. They must not change until `wait_drained`, `withdraw` or a fence has returned."""
        out = super().publish(version, wait=wait, traceparent=traceparent, changed=changed)
        if out.state != "ended":
            self._standing = version
        return out

    def _attach(self) -> None:
        spans, places = _spans(self._shards)
        if self._agent is None or spans != self._registered:
            self._release()
            self._agent = self._make()
            self._agent.register(spans)
            self._registered = spans
            self._session = uuid.uuid4().hex  # the endpoint is another one, and the session names it
        regions = [{"base": a, "nbytes": n, **({"device": f"{k}:{i}"} if k != "cpu" else {})} for a, n, k, i in spans]
        entries = [
            {
                "name": s.name, "dtype": s.dtype, "shape": s.shape, "box": s.box, "region": r, "offset": o, "stride": list(s.data.stride()),
                **({} if self._digests is None or self._is_digested(s) else {"undigested": True}),
            }
            for s, (r, o) in zip(self._shards, places, strict=True)
        ]  # fmt: skip
        body = {
            "model": self.model, "world": self.world, "job": self.job, "session": self._session, "groups": self._groups, "entries": entries,
            "endpoint": {"agent": self._agent.name, "metadata": _base64(self._agent.metadata()), "regions": regions},
            "digests": self._digests is not None,
        }  # fmt: skip
        self._answer = self.sidecar.call("PUT", self._path, body, wait=self.timeout)
        self._generation = self._answer["generation"]

    def _is_digested(self, shard: Shard) -> bool:
        if self._digested is None or callable(self._digested):
            return self._digested is None or bool(self._digested(shard))
        return any(fnmatchcase(shard.name, pattern) for pattern in self._digested)

    def _refresh(self) -> None:
        before = self._pointers
        super()._refresh()
        if self._pointers != before:
            self._with_patience(self._attach)

    def _fill(self, slot: int) -> dict[str, Any]:
        """Nothing to copy: what the devices are still at is waited for, and digested where that was asked for."""
        _settle(self._shards)
        if not self._digests:
            return {}
        some = [i for i, s in enumerate(self._shards) if self._is_digested(s)]
        grids = self._answer.get("grids") or [[] for _ in self._shards]
        answer = {**self._answer, "grids": [grids[i] for i in some]}
        return {"digests": _base64(self._digests(answer, [self._shards[i] for i in some]))}

    def close(self, timeout: float = 30.0) -> None:
        """Withdraws what stands, has the sidecar forget it, and gives the registration back."""
        super().close(timeout)
        for hook in self._fences:
            hook.remove()
        self._fences = []
        self._release()

    def _release(self) -> None:
        if self._agent is not None:
            self._agent.close()
        self._agent, self._registered = None, []


def _spans(shards: Sequence[Shard]) -> tuple[list[Span], list[tuple[int, int]]]:
    """One region for each storage, and where in it each shard lies: region number and bytes."""
    spans: list[Span] = []
    known: dict[tuple[int, str], int] = {}
    places = []
    for s in shards:
        if not copying.is_tensor(s.data):
            raise errors.ShardError(f"{s.name} is a {type(s.data).__name__}: only torch tensors are read in place")
        storage, device = s.data.untyped_storage(), s.data.device
        if s.data.device.type not in ("cpu", "cuda"):
            raise errors.ShardError(f"{s.name} is on {device}: NIXL registers host and CUDA memory")
        if s.nelems == 0:
            places.append((0, 0))
            continue
        key = (storage.data_ptr(), str(device))
        if key not in known:
            known[key] = len(spans)
            spans.append((storage.data_ptr(), storage.nbytes(), device.type, device.index or 0))
        places.append((known[key], s.data.storage_offset() * SIZES[s.dtype]))
    if not spans:
        raise errors.ShardError("this rank holds no byte: it has nothing to register")
    return spans, places


def _settle(shards: Sequence[Shard]) -> None:
    devices = {s.data.device for s in shards if s.data.device.type == "cuda"}
    if devices:
        import torch

        for device in devices:
            torch.cuda.synchronize(device)


def _base64(b: bytes) -> str:
    import base64

    return base64.b64encode(b).decode()
