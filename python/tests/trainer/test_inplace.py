"""Tensors are read where they lie, over NIXL's own Python bindings. Host memory stands for a GPU's.

Needs torch and the NIXL wheel that `make nixl` fetches (CPython 3.11, as its bindings are).
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import CACHE, PATIENCE, World, until

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from drydock import ShardError  # noqa: E402
from drydock.inplace import InPlacePublisher, NixlAgent  # noqa: E402


@pytest.fixture(scope="module")
def library() -> Path:
    """The NIXL library; its bindings can be imported from then on."""
    found = sorted((CACHE / "nixl").glob("*/.nixl_cu12.mesonpy.libs/libnixl_capi.so"))
    if not found:
        pytest.skip("no NIXL: make nixl")
    sys.path.append(str(found[-1].parents[1]))
    return found[-1]


def agent() -> NixlAgent:
    try:
        return NixlAgent(api=importlib.import_module("nixl_cu12._api"))
    except ImportError as e:
        pytest.skip(f"the bindings of NIXL can't be imported: {e}")


def bytes_of(tensor: Any) -> bytes:
    return bytes(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())


def test_a_receiver_reads_the_live_tensors(world: World, library: Path) -> None:
    world.sidecar()
    world.receiver([("0.weight", "F32", (40, 24)), ("1.weight", "F32", (8, 40))], "--transport", "nixl", "--nixl-lib", str(library))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 40, bias=False), nn.Linear(40, 8, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    publisher = InPlacePublisher(world.model, model, agent=agent, rank=0, world=1, socket=world.socket, timeout=PATIENCE)
    publisher.fence(optimizer)
    for step in (1, 2, 3):
        model(torch.randn(4, 24)).square().mean().backward()
        optimizer.step()  # waits until nobody reads the step before
        publisher.publish(step, wait=True)
        publisher.wait_served(step)
        assert world.served() == {n: bytes_of(p) for n, p in model.named_parameters()}
    states = {v["version"]: v["state"] for v in publisher.status()["versions"]}
    assert states == {1: "drained", 2: "drained", 3: "committed"}
    publisher.close()


def test_what_cant_be_read_in_place(world: World) -> None:
    with pytest.raises(ValueError, match="cast"):
        InPlacePublisher(world.model, {"w": torch.zeros(3)}, dtype="bfloat16")
    world.sidecar()
    with pytest.raises(ShardError, match="no byte"):
        InPlacePublisher(world.model, {"w": torch.zeros(0, 3)}, socket=world.socket)


class NoAgent:
    """An agent that registers nothing: the API is all that is tested with it."""

    name = "none"

    def register(self, spans: Any) -> None:
        self.spans = spans

    def metadata(self) -> bytes:
        return b"metadata"

    def close(self) -> None:
        pass


def test_not_all_tensors_need_digests(world: World) -> None:
    """The trainer is asked for those that it said it would make, and names the others by a pattern or a function."""
    world.sidecar()
    tensors = {"a.w": torch.zeros(300, 300), "a.scale": torch.zeros(4), "b.w": torch.zeros(5)}
    for digested, names in ((["a.*"], ["a.w", "a.scale"]), (lambda s: s.nelems < 10, ["a.scale", "b.w"]), ([], [])):
        seen: list[Any] = []

        def digests(answer: dict[str, Any], shards: Any, seen: list[Any] = seen) -> bytes:
            seen += [[s.name for s in shards], answer["grids"]]
            return bytes(8 * answer.get("tiles", 0))

        publisher = InPlacePublisher(
            world.model, tensors, agent=NoAgent, digests=digests, digested=digested, rank=0, world=1, socket=world.socket, timeout=PATIENCE
        )
        assert publisher.publish(1, wait=True).committed
        assert seen[0] == names and len(seen[1]) == len(names) and all(len(g) == tensors[n].dim() for n, g in zip(*seen, strict=True))
        publisher.close()
    with pytest.raises(ValueError, match="give digests too"):
        InPlacePublisher(world.model, tensors, agent=NoAgent, digested=["a.*"], rank=0, world=1, socket=world.socket)


def test_digests_must_be_as_many_as_asked_for(world: World) -> None:
    from drydock import SidecarError

    world.sidecar()
    count: list[int] = []

    def digests(answer: dict[str, Any], shards: Any) -> bytes:
        count.append(answer["tiles"])
        return bytes(8 * answer["tiles"] - (8 if len(count) == 1 else 0))

    tensors = {"w": torch.zeros(300, 300), "view": torch.zeros(50, 8).t()}
    publisher = InPlacePublisher(
        world.model, tensors, agent=NoAgent, digests=digests, rank=0, world=1, socket=world.socket, timeout=PATIENCE
    )
    with pytest.raises(SidecarError, match="entries that carry digests have"):
        publisher.publish(1)
    assert publisher.publish(2, wait=True).committed and count[0] > 1
    until("the status", lambda: publisher.status()["external"])
    publisher.close()
