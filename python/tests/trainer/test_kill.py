"""Trainers and sidecars are killed, and started again. Nothing is torn, and what was lost is said."""

from __future__ import annotations

import array
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from conftest import PATIENCE, World, until

from drydock import Publisher, Shard, Sidecar, Spawn, whole

#: Elements of the tensor: 8 MiB, so that a kill hits the middle of something now and then.
N = 1 << 21


def values(version: int) -> array.array[float]:
    return array.array("f", [float(version)]) * N


def tensors(version: int) -> dict[str, Shard]:
    return {"w": whole("w", "float32", (N,), values(version))}


SOURCES = [("w", "F32", (N,))]


def served_version(world: World) -> int:
    """The version that the receiver serves; fails where it is a mix."""
    got = array.array("f", world.served()["w"])
    assert got == values(int(got[0])), "the receiver serves a mix of versions"
    return int(got[0])


def trainer(world: World, body: str, **env: str) -> subprocess.Popen[bytes]:
    """A trainer in a process of its own. `p` is its publisher, `held` what that publishes."""
    code = f"""
import array, os, signal, sys, time
sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}
from test_kill import *
held = tensors(0)
p = Publisher({world.model!r}, lambda: held, rank=0, world=1, job="j", socket={world.socket!r}, timeout={PATIENCE})
{textwrap.dedent(body)}
"""
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **env})


def test_trainer_dies_in_mid_copy(world: World) -> None:
    """It has copied half of version 2 when it is killed: version 1 is served on, and a second life goes on with 2."""
    world.sidecar()
    world.receiver(SOURCES)
    child = trainer(
        world,
        """
        held = tensors(1)
        p.publish(1, wait=True)
        held = tensors(2)
        p._refresh()
        slot = p._poll("begin", 2, ("filling",), 10)["slot"]
        for destination, source in (named.copy for named in p._copies_of(slot)):
            destination[: len(source) // 2] = source[: len(source) // 2]
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert child.wait(PATIENCE) == -signal.SIGKILL
    until("version 1", lambda: "r" in serving(world, 1))
    assert served_version(world) == 1
    arena = Sidecar(world.socket).status()["arenas"][0]
    until("the death to be noticed", lambda: Sidecar(world.socket).status()["arenas"][0]["trainer"]["alive"] is False)
    assert {v["version"]: v["state"] for v in arena["versions"]} == {1: "committed", 2: "filling"}
    with Publisher(world.model, tensors(2), rank=0, world=1, job="j", socket=world.socket, timeout=PATIENCE) as second:
        assert second.publish(2, wait=True).committed
        second.wait_served(2)
        assert served_version(world) == 2


def serving(world: World, version: int) -> list[str]:
    answer = Sidecar(world.socket).call("POST", "/v1/arenas/0/served", {"version": version, "receivers": 1})
    return list(answer["receivers"])


@pytest.mark.parametrize("seed", range(3))
def test_trainer_dies_anywhere(world: World, seed: int) -> None:
    """It publishes as fast as it can and is killed at some time; what is served is whole."""
    world.sidecar()
    world.receiver(SOURCES)
    child = trainer(
        world,
        """
        for v in range(1, 1000):
            held = tensors(v)
            p.publish(v)
        """,
    )
    until("a version", lambda: Path(world.shm, "arenas", "r", "current").exists())
    time.sleep(0.11 * (seed + 1))  # not a synchronisation: any moment will do
    child.kill()
    child.wait()
    until("an end of the work under way", lambda: all(v["state"] in ("committed", "drained", "filling") for v in versions(world)))
    newest = max(v["version"] for v in versions(world) if v["state"] == "committed")
    until("the newest version", lambda: serving(world, newest))
    assert served_version(world) == newest


def versions(world: World) -> list[dict[str, object]]:
    return list(Sidecar(world.socket).status()["arenas"][0]["versions"])


def test_sidecar_dies_while_it_publishes(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It is killed at many moments while a trainer publishes on; the trainer goes on, and says what was lost."""
    first = world.sidecar()
    world.receiver(SOURCES)
    held = tensors(0)
    publisher = Publisher(world.model, lambda: held, rank=0, world=1, job="j", socket=world.socket, timeout=PATIENCE)
    generation = publisher._generation
    sidecar, version = first, 0
    with caplog.at_level(logging.WARNING, "drydock"):
        for kill in range(4):
            for _ in range(3):
                version += 1
                held = tensors(version)
                publisher.publish(version)
            time.sleep(0.015 * kill)
            sidecar.kill()
            sidecar.wait()
            sidecar = world.sidecar(name=f"sidecar{kill}")
            version += 1
            held = tensors(version)
            publisher.publish(version)
    assert publisher._generation == generation, "the files were adopted"
    version += 1
    held = tensors(version)
    assert publisher.publish(version, wait=True).committed
    publisher.wait_served(version)
    assert served_version(world) == version
    assert any("started again" in r.message for r in caplog.records)
    publisher.close()


def test_sidecar_dies_between_copy_and_publish(world: World) -> None:
    """The bytes outlive the sidecar: the next one publishes them out of the slot that the trainer filled before."""
    first = world.sidecar()
    world.receiver(SOURCES)
    held = tensors(1)
    publisher = Publisher(world.model, lambda: held, rank=0, world=1, job="j", socket=world.socket, timeout=PATIENCE)
    real, calls = publisher._version, []

    def version(verb: str, *args: object, **more: object) -> object:
        if verb == "publish" and not calls:
            calls.append(verb)
            first.kill()
            first.wait()
            world.sidecar(name="second")
        return real(verb, *args, **more)  # type: ignore[arg-type]

    publisher._version = version  # type: ignore[method-assign, assignment]
    assert publisher.publish(1, wait=True).committed
    publisher.wait_served(1)
    assert served_version(world) == 1
    publisher.close()


def test_both_die(world: World) -> None:
    """A trainer and its sidecar are killed together; their next lives have nothing in common with them but the job."""
    sidecar = world.sidecar()
    world.receiver(SOURCES)
    child = trainer(
        world,
        """
        held = tensors(1)
        p.publish(1, wait=True)
        p.wait_served(1)
        while True:
            time.sleep(1)
        """,
    )
    until("version 1", lambda: Path(world.shm, "arenas", "r", "current").exists())
    for p in (child, sidecar):
        p.kill()
        p.wait()
    assert served_version(world) == 1, "what was installed serves on"
    world.sidecar(name="second")
    with Publisher(world.model, tensors(2), rank=0, world=1, job="j", socket=world.socket, timeout=PATIENCE) as publisher:
        assert publisher.publish(2, wait=True).committed
        publisher.wait_served(2)
        assert served_version(world) == 2


def test_files_made_anew_are_noticed(world: World) -> None:
    """A sidecar comes back to an empty folder: the trainer's mapping is of files that are gone."""
    first = world.sidecar()
    publisher = Publisher(world.model, tensors(1), rank=0, world=1, job="j", socket=world.socket, timeout=PATIENCE)
    publisher.publish(1, wait=True)
    generation = publisher._generation
    first.kill()
    first.wait()
    import shutil

    shutil.rmtree(world.shm / "publish")
    world.sidecar(name="second")
    world.receiver(SOURCES)
    held = tensors(2)
    publisher._source = held
    assert publisher.publish(2, wait=True).committed and publisher._generation > generation
    publisher.wait_served(2)
    assert served_version(world) == 2
    publisher.close()


def test_package_starts_the_sidecar(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And starts it again after it was killed; it leaves when it is not needed any more."""
    from conftest import BIN

    spawn = Spawn(
        program=str(BIN / "publisher"), nats=world.nats, exit_idle=1, args=["--arena-dir", str(world.shm / "publish")],
    )
    with Publisher(world.model, tensors(1), socket=world.socket, spawn=spawn, timeout=PATIENCE) as publisher:
        assert publisher.publish(1, wait=True).committed
        os.kill(Sidecar(world.socket).status()["pid"], signal.SIGKILL)
        assert publisher.publish(2, wait=True).committed
        pid = Sidecar(world.socket).status()["pid"]
    until("the sidecar to leave", lambda: not alive(pid))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
