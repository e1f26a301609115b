"""A trainer in plain Python publishes, and a receiver takes what it published. No torch is needed."""

from __future__ import annotations

import array
import os
from pathlib import Path

import pytest
from conftest import PATIENCE, World, until

from drydock import DrydockError, Held, Publisher, Shard, ShardError, Sidecar, VersionTaken, whole


def tensors(version: int) -> dict[str, Shard]:
    """Two tensors, whose values tell the version."""
    w = array.array("f", (version + i / 7 for i in range(24 * 16)))
    b = array.array("H", ((version * 31 + i) & 0x3FFF for i in range(37)))
    return {"w": whole("w", "float32", (24, 16), w), "b": whole("b", "bfloat16", (37,), b)}


SOURCES = [("w", "F32", (24, 16)), ("b", "BF16", (37,))]


def check(world: World, version: int) -> None:
    got = world.served()
    for name, shard in tensors(version).items():
        assert got[name] == bytes(shard.data), f"{name} of version {version} differs"


def test_receiver_serves_what_was_published(world: World) -> None:
    world.sidecar()
    world.receiver(SOURCES)
    held = tensors(0)
    with Publisher(world.model, lambda: held, rank=0, world=1, socket=world.socket, timeout=PATIENCE) as publisher:
        for version in (1, 2, 3, 10, 20):
            held = tensors(version)
            out = publisher.publish(version, wait=version % 2 == 0)
            assert out.state in ("publishing", "committed") and out.slot in (0, 1)
            assert publisher.wait_served(version) == ["r"]
            check(world, version)
        slots = publisher.status()["slots"]
        assert {s["version"] for s in slots} == {10, 20}, "the version before the last stays readable"
    assert Sidecar(world.socket).status()["arenas"] == []
    assert not list(Path(world.shm, "publish").glob("*")), "the arena's files are left behind"


def test_two_ranks_make_one_version(world: World) -> None:
    world.sidecar()
    world.receiver([("w", "F32", (24, 16))])
    values = array.array("f", (i / 3 for i in range(24 * 16)))
    halves = [
        [Shard("w", "float32", (24, 16), ((12 * r, 12 * r + 12), (0, 16)), values[192 * r : 192 * r + 192])] for r in range(2)
    ]
    ranks = [Publisher(world.model, h, rank=r, world=2, job="j", socket=world.socket, timeout=PATIENCE) for r, h in enumerate(halves)]
    for publisher in reversed(ranks):  # rank 1 before rank 0 has taken the run: nobody waits
        publisher.publish(1)
    for publisher in ranks:
        assert publisher.wait_committed(1).committed
    ranks[0].wait_served(1)
    assert world.served()["w"] == values.tobytes()
    for publisher in ranks:
        publisher.close()


def test_publish_twice_is_publish_once(world: World) -> None:
    world.sidecar()
    with Publisher(world.model, tensors(1), socket=world.socket, timeout=PATIENCE) as publisher:
        first = publisher.publish(1, wait=True)
        again = publisher.publish(1, wait=True)
        assert first.committed and again.committed and again.slot == first.slot and again.copied == 0
        publisher.wait_drained(1)
        ended = publisher.publish(1)
        assert ended.state == "ended" and "withdrawn" in ended.reason


def test_held_names_the_reader(world: World) -> None:
    """A receiver that was stopped in mid-read keeps its lease until that expires."""
    world.sidecar("--drain-timeout", "1s")
    with Publisher(world.model, tensors(1), socket=world.socket, timeout=PATIENCE) as publisher:
        publisher.publish(1, wait=True)
        hold_lease(world, publisher, 1)
        with pytest.raises(Held) as told:
            publisher.wait_drained(1, timeout=0.5)
        assert told.value.holders == ("probe",)


def hold_lease(world: World, publisher: Publisher, version: int) -> None:
    """Writes a lease as docs/wire.md has it, with the server's own protocol and no client library."""
    import socket
    import struct

    host, port = world.nats.removeprefix("nats://").split(":")
    run = publisher.status()["run"]

    def text(s: str) -> bytes:
        return bytes([0xA0 | len(s)]) + s.encode() if len(s) < 32 else b"\xd9" + bytes([len(s)]) + s.encode()

    def number(n: int) -> bytes:
        return b"\xcf" + struct.pack(">Q", n)

    fields = [
        ("schema", text("drydock.lease.v1")), ("run", number(run)), ("version", number(version)), ("receiver", text("probe")),
        ("holder", b"\xc4\x10" + bytes(range(16))), ("host", text("h")), ("ttl_ms", number(20000)),
    ]  # fmt: skip
    body = bytes([0x80 | len(fields)]) + b"".join(text(k) + v for k, v in fields)
    subject = f"$KV.refit_lease_{world.model}.{run}.{version}.probe"
    with socket.create_connection((host, int(port)), PATIENCE) as s:
        head = b"NATS/1.0\r\nNats-TTL: 20s\r\n\r\n"
        s.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n')
        s.sendall(b"HPUB %s %d %d\r\n%s%s\r\nPING\r\n" % (subject.encode(), len(head), len(head) + len(body), head, body))
        seen = b""
        while b"PONG" not in seen:
            seen += s.recv(4096)
    until("the lease", lambda: any(x.get("holders") for x in publisher.status()["slots"]))


def test_what_cant_be_published(world: World) -> None:
    world.sidecar()
    with pytest.raises(ShardError, match="nothing"):
        Publisher(world.model, {}, socket=world.socket)
    with pytest.raises(ValueError, match="box"):
        Shard("w", "float32", (4,), ((0, 5),), b"")
    with pytest.raises(DrydockError, match="serves model"):
        Publisher("other", tensors(1), socket=world.socket)
    short = {"w": whole("w", "float32", (4,), bytes(12))}
    with Publisher(world.model, short, socket=world.socket) as publisher, pytest.raises(ShardError, match="12 bytes"):
        publisher.publish(1)


def test_cast_needs_torch(world: World) -> None:
    world.sidecar()
    cast = {"w": "bfloat16"}
    with Publisher(world.model, tensors(1), socket=world.socket, dtype=cast) as publisher, pytest.raises(ShardError, match="only torch"):
        publisher.publish(1)
    with pytest.raises(ShardError, match="can't be published as"):
        Publisher(world.model, {"i": whole("i", "int64", (1,), bytes(8))}, socket=world.socket, dtype=lambda _: "float32")


def test_an_earlier_life_had_the_number(world: World) -> None:
    world.sidecar()
    Publisher(world.model, tensors(1), job="j", socket=world.socket, timeout=PATIENCE).publish(1, wait=True)
    second = Publisher(world.model, tensors(2), job="j", socket=world.socket, timeout=PATIENCE)  # the same process: it may
    with pytest.raises(VersionTaken):
        second.publish(1)
    assert second.publish(2, wait=True).committed
    second.close()


def test_socket_is_private(world: World) -> None:
    world.sidecar()
    assert os.stat(world.socket).st_mode & 0o777 == 0o600
    for file in Path(world.shm, "publish").rglob("*"):
        assert file.stat().st_mode & 0o077 == 0
