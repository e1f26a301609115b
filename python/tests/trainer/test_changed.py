"""Versions of which a part changed: only that is copied, and read by receivers that serve the version before."""

from __future__ import annotations

import array
import json
import signal
from typing import Any

import pytest
from conftest import PATIENCE, World

from drydock import Incomplete, Publisher, Shard, whole

SOURCES = [("w", "F32", (24, 16)), ("b", "BF16", (37,)), ("n", "F32", (8,))]
NBYTES = {"w": 24 * 16 * 4, "b": 37 * 2, "n": 32}


class Trainer:
    """Three tensors that are changed where they lie."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {
            "w": array.array("f", bytes(NBYTES["w"])), "b": array.array("H", bytes(NBYTES["b"])), "n": array.array("f", bytes(32)),
        }  # fmt: skip

    def shards(self) -> dict[str, Shard]:
        types = {"F32": "float32", "BF16": "bfloat16"}
        return {n: whole(n, types[d], s, self.arrays[n]) for n, d, s in SOURCES}

    def step(self, value: int, *names: str) -> None:
        for name in names:
            for i in range(len(self.arrays[name])):
                self.arrays[name][i] = value * 3 + i % 5

    def bytes(self) -> dict[str, bytes]:
        return {n: a.tobytes() for n, a in self.arrays.items()}


def read(world: World) -> list[int]:
    """Bytes that the receiver read for each version that it installed."""
    prefix = "MX_REFIT_TIMING "
    records = [json.loads(x[len(prefix) :]) for x in world.log("r").splitlines() if x.startswith(prefix)]
    return [r["drydock"]["wire_bytes"] for r in records]


def test_only_what_changed_is_copied_and_read(world: World) -> None:
    world.sidecar()
    world.receiver(SOURCES)
    trainer = Trainer()
    with Publisher(world.model, trainer.shards(), rank=0, world=1, socket=world.socket, timeout=PATIENCE) as publisher:
        assert publisher.names == ["w", "b", "n"]
        trainer.step(1, "w", "b", "n")
        assert publisher.publish(1, changed=["w"], wait=True).base is None, "there is nothing that it could stand on"
        publisher.wait_served(1)
        # Two slots by turns: each lacks what the last two versions changed.
        for version, names in ((2, ["b"]), (3, ["w"]), (4, []), (5, ["n", "b"]), (6, ["w"])):
            trainer.step(version, *names)
            out = publisher.publish(version, changed=names, wait=True)
            assert out.base == version - 1
            publisher.wait_served(version)
            assert world.served() == trainer.bytes(), f"version {version}"
        trainer.step(7, "w", "b", "n")
        assert publisher.publish(7, wait=True).base is None
        publisher.wait_served(7)
        assert world.served() == trainer.bytes()
    sizes = read(world)
    assert sizes[1:6] == [NBYTES["b"], NBYTES["w"], 0, NBYTES["n"] + NBYTES["b"], NBYTES["w"]], sizes


def test_what_changed_in_a_version_that_came_to_nothing_is_not_forgotten(world: World) -> None:
    """It is the next version's to bring, though its trainer names it no more."""
    world.sidecar("--commit-timeout", "1s")
    world.receiver(SOURCES)
    trainer = Trainer()
    first = Publisher(world.model, trainer.shards(), rank=0, world=2, job="j", socket=world.socket, timeout=PATIENCE)
    nothing = [Shard("n", "float32", (8,), ((8, 8),), b"")]
    second = Publisher(world.model, nothing, rank=1, world=2, job="j", socket=world.socket, timeout=PATIENCE)
    ranks = [first, second]

    def publish(version: int, changed: list[str]) -> list[Any]:
        outs = [p.publish(version, changed=changed if p is first else []) for p in ranks]
        for p in ranks:
            p.wait_committed(version)
        return outs

    trainer.step(1, "w", "b", "n")
    publish(1, [])
    trainer.step(2, "b")
    with pytest.raises(Incomplete):
        first.publish(2, changed=["b"], wait=True)
    assert second.publish(2, changed=[], wait=True).state == "ended"  # it comes too late
    trainer.step(3, "n")
    outs = publish(3, ["n"])
    first.wait_served(3)
    assert world.served() == trainer.bytes()
    assert outs[0].base is None, "the version before was ended: nothing can stand on it"
    for p in ranks:
        p.close()


def test_a_sidecar_that_was_started_again_knows_no_base(world: World) -> None:
    child = world.sidecar()
    world.receiver(SOURCES)
    trainer = Trainer()
    with Publisher(world.model, trainer.shards(), rank=0, world=1, socket=world.socket, timeout=PATIENCE) as publisher:
        for version in (1, 2):
            trainer.step(version, "w", "b")
            publisher.publish(version, changed=["w", "b"], wait=True)
        publisher.wait_served(2)
        child.send_signal(signal.SIGKILL)
        child.wait()
        world.sidecar(name="again")
        trainer.step(3, "b")
        out = publisher.publish(3, changed=["b"], wait=True)
        publisher.wait_served(3)
        assert world.served() == trainer.bytes() and out.base is None
        trainer.step(4, "w")
        assert publisher.publish(4, changed=["w"], wait=True).base == 3
        publisher.wait_served(4)
        assert world.served() == trainer.bytes()


def test_names_and_groups(world: World) -> None:
    world.sidecar()
    world.receiver(SOURCES)
    trainer = Trainer()
    with Publisher(
        world.model, trainer.shards(), rank=0, world=1, socket=world.socket, timeout=PATIENCE, atomic=[("w", "n")]
    ) as publisher:
        publisher.publish(1, wait=True)
        for wrong in (["nope"], "w", ["w", "W"]):
            with pytest.raises(ValueError, match="changed"):
                publisher.publish(2, changed=wrong)
        trainer.step(2, "n", "w")  # w is the same group's: naming one of them is enough
        assert publisher.publish(2, changed=["n"], wait=True).base == 1
        publisher.wait_served(2)
        assert world.served() == trainer.bytes()


def test_tensors_in_blocks_and_cast(world: World) -> None:
    """The same with torch: a matrix that lies in blocks of columns is copied block by block, and cast, or not at all."""
    torch = pytest.importorskip("torch")
    world.sidecar("--served-layout", "blocks")
    world.receiver([("up", "BF16", (64, 4096)), ("norm", "BF16", (64,))])
    held = {"up": torch.zeros(64, 4096), "norm": torch.zeros(64)}
    with Publisher(world.model, held, dtype="bfloat16", rank=0, world=1, socket=world.socket, timeout=PATIENCE) as publisher:
        for version, name in enumerate(("up", "norm", "up", "norm", "norm"), 1):
            held[name].normal_()
            out = publisher.publish(version, changed=[name], wait=True)
            assert out.base == (version - 1 or None)
            publisher.wait_served(version)
            want = {n: bytes(t.bfloat16().view(torch.uint8).numpy().tobytes()) for n, t in held.items()}
            assert world.served() == want, f"version {version}"
        moved = held["up"].clone()
        held["up"] = moved  # another tensor: it is found anew, and everything is published
        assert publisher.publish(6, changed=["norm"], wait=True).base is None


def test_memory_in_place_can_say_what_changed(world: World) -> None:
    torch = pytest.importorskip("torch")
    from test_inplace import NoAgent

    from drydock.inplace import InPlacePublisher

    world.sidecar()
    tensors = {"w": torch.zeros(30, 30), "b": torch.zeros(5)}
    publisher = InPlacePublisher(world.model, tensors, agent=NoAgent, rank=0, world=1, socket=world.socket, timeout=PATIENCE)
    assert publisher.publish(1, wait=True).base is None
    publisher.withdraw()
    assert publisher.publish(2, changed=["b"], wait=True).base == 1, "what version 1 was is known, though it is withdrawn"
    publisher.close()
