"""Everything around a real vLLM server is killed, or does what it shouldn't. The engine never serves mixed weights, always comes
back, and somebody is told. Requests go on all the while; each test's rig ends by judging every one of their answers.

What needs a fault inside the engine (a failed apply, truncated and swapped arenas, older versions, a caller killed after each
call) is in pkg/refit/install/vllm/real_test.go.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PATIENCE, Background, Rig
from processes import ready, until

pytestmark = [pytest.mark.rl, pytest.mark.vllm]


def test_trainer_killed_in_mid_copy(rig: Rig) -> None:
    """Half of a version is in shared memory when its trainer dies. The version before serves on; the next life goes on."""
    before = rig.server.version()
    rig.publisher.close()
    rig.step += 2
    code = f"""
import os, signal
from safetensors.torch import load_file
from drydock import Publisher
p = Publisher({rig.world.model!r}, load_file({str(rig.checkpoint / "model.safetensors")!r}), rank=0, world=1, job="job-killed",
              socket={str(rig.world.sockets / "rank-0.sock")!r}, timeout=60)
p.publish({rig.step - 1}, wait=True)
p._settle(); p._refresh()
slot = p._poll("begin", {rig.step}, ("filling",), 60)["slot"]
for destination, source in p._copies_of(slot)[::2]:
    destination.copy_(source)
print(p.wait_committed({rig.step - 1}).run, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL
    whole = f"{done.stdout.strip()}.{rig.step - 1}"
    rig.labels[whole] = "A"
    assert whole != before
    rig.served(whole)  # and not the torn one after it
    rig.new_trainer()


@pytest.mark.parametrize("delay", [0.0, 0.004, 0.02, 0.1])
def test_receiver_killed(rig: Rig, delay: float) -> None:
    """At some moment of stage or installation. The next life settles what it finds, and brings the version."""
    label = rig.publish("A")
    time.sleep(delay)  # not a synchronisation: any moment will do
    rig.receiver.kill()
    rig.start_receiver()
    rig.served(label)
    assert not rig.paused()


def test_receiver_killed_in_mid_swap(rig: Rig) -> None:
    """The engine drains a long answer, paused, when the receiver dies: the long answer ends well, by the old weights; the
    next receiver resumes the engine and brings the version."""
    before = rig.server.version()
    long = Background(lambda: rig.server.generate(rig.prompts[0], tokens=450)[0])
    time.sleep(0.3)  # it has begun: the drain below lasts as long as it does
    label = rig.publish("A")
    until("the engine to be paused", rig.paused, PATIENCE)
    rig.receiver.kill()
    answer = long.result()
    assert answer.versions == [before] and answer.finish == "length" and len(answer.tokens) == 450
    rig.start_receiver()
    rig.served(label)
    assert not rig.paused()


def test_sidecar_killed(rig: Rig) -> None:
    """Its versions can't be reached any more; what serves, serves on. The trainer goes on with the next."""
    rig.publish("A", wait=False)
    rig.sidecar.kill()
    rig.sidecar = rig.world.sidecar(0)
    label = rig.publish("A")
    rig.served(label)


def test_missing_tensor(rig: Rig) -> None:
    """A trainer without one of the tensors that the engine needs: refused before a byte is read, by name."""
    before = rig.server.version()
    rig.new_trainer(drop="model.layers.1.self_attn.k_proj.weight")
    rig.publish("A")
    assert "model.layers.1.self_attn" in rig.complaint("k_proj")
    rig.whole(before)
    rig.new_trainer()


def test_wrong_shape(rig: Rig) -> None:
    """A tensor with a row too few."""
    before = rig.server.version()
    rig.new_trainer(reshape="model.layers.0.mlp.down_proj.weight")
    rig.publish("A")
    assert "127" in rig.complaint("down_proj")
    rig.whole(before)
    rig.new_trainer()


def test_second_receiver(rig: Rig) -> None:
    """Two receivers for one engine: the second is refused, with the first one's name; the first goes on."""
    second, heard = None, rig.refits
    try:
        from report import Refits

        other = Refits()
        second = rig.world.receiver(rig.server, rig.capture, name="second", line=other.line)
        label = rig.publish("A")
        rig.served(label)
        until(f"the second receiver to say who has the engine: {other.complaints}",
              lambda: any("rollout" in c and "updated by somebody else" in c for c in other.complaints), PATIENCE)  # fmt: skip
        assert heard.complaints == [] or "second" not in heard.complaints[-1]
    finally:
        if second is not None:
            second.end()


def test_paused_by_somebody_else(rig: Rig) -> None:
    """The receiver leaves a foreign pause alone and says so; once it is lifted, the version comes by itself."""
    before = rig.server.version()
    rig.server.call("POST", "/pause?mode=keep")
    label = rig.publish("A")
    rig.complaint("paused by somebody else")
    assert rig.paused() and rig.server.version() == before
    rig.server.call("POST", "/resume")
    rig.served(label)


def test_rollback_to_an_older_version(rig: Rig) -> None:
    """Older than what serves: only by order."""
    older = rig.server.version()
    newer = rig.refit("A")
    argv = [os.environ.get("DRYDOCK_BIN", "bin") + "/refitctl", "rollback", older, "--reason", "a test", "--nats", rig.world.nats]
    subprocess.run([*argv, "--model", rig.world.model], check=True, cwd=Path(__file__).resolve().parents[3], timeout=60)
    rig.served(older)
    assert older != newer


def test_engine_killed(session_rig: Rig) -> None:
    """The server dies and is started again on its checkpoint: the receiver says so, and brings the newest version."""
    rig = session_rig
    rig.refit("B")
    rig.engine.kill()
    label = rig.publish("B")
    rig.complaint("refused")
    rig.engine, server = rig.world.vllm(rig.checkpoint, port=rig.server.port)
    ready(rig.engine, server)
    rig.served(label)
    rig.refit("A")
