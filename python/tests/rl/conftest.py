"""The example's modules, and a rig of real processes: NATS, a sidecar, a receiver, a vLLM server. `make test-rl` runs all of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "rl"
sys.path.insert(0, str(EXAMPLE))

import checks  # noqa: E402
import processes  # noqa: E402
import report  # noqa: E402
from load import BEST, Load  # noqa: E402

#: Seconds that bound a refit, on cores that others use too.
PATIENCE = 120.0


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rl: tests of the RL example; those with a rig run real vLLM servers")


class Rig:
    """One server, and weights A and B that go back and forth. The probe of A is taken before Drydock touches the engine; that of
    B at its first refit (that a refit equals a fresh engine is proven elsewhere: `make demo-rl ARGS=--prove`)."""

    def __init__(self, folder: Path) -> None:
        self.world = processes.World(folder, "break-rl")
        self.step, self.jobs, self.publisher = 0, 0, None

    def start(self) -> None:
        """Everything, which takes minutes."""
        from safetensors.torch import load_file

        folder = self.world.folder
        self.world.start_nats()
        checkpoint = folder / "init"
        self.world.checkpoint(checkpoint)
        self.checkpoint = checkpoint
        self.engine, self.server = self.world.vllm(checkpoint)
        self.capture = self.world.capture(checkpoint, 1)
        self.sidecar = self.world.sidecar(0)
        processes.ready(self.engine, self.server)
        self.refits, self.receiver = report.Refits(), None
        self.prompts = [[1, 40 + i, 300 + i, 7, 500 + 3 * i] for i in range(3)]
        self.weights = {"A": load_file(checkpoint / "model.safetensors")}
        self.weights["B"] = {n: t + 0.2 * t.abs().mean() * t.sign().flip(0) for n, t in self.weights["A"].items()}
        self.probes = {"A": self.probe()}
        self.labels = {self.server.version(): "A"}  # which weights each version holds
        self.start_receiver()
        self.new_trainer()

    # The trainer: this process, in place of a job.

    def new_trainer(self, drop: str = "", reshape: str = "") -> None:
        """A launch of its own: a new run. Its tensors may lack one, or have one of another shape."""
        from drydock import Publisher

        if self.publisher is not None:
            self.publisher.close()
        self.jobs += 1
        self.tensors = {n: t.clone() for n, t in self.weights["A"].items() if n != drop}
        if reshape:
            self.tensors[reshape] = self.tensors[reshape][:-1].clone()
        self.publisher = Publisher(
            self.world.model,
            self.tensors,
            rank=0,
            world=1,
            job=f"job-{self.jobs}",
            socket=self.world.sockets / "rank-0.sock",
            timeout=PATIENCE,
        )

    def publish(self, which: str, wait: bool = True) -> str:
        """The next version, of weights A or B. Its label, once it is committed."""
        self.step += 1
        for name, tensor in self.tensors.items():
            source = self.weights[which][name]
            tensor.copy_(source[: len(tensor)])
        out = self.publisher.publish(self.step, wait=wait)
        label = f"{out.run}.{self.step}"
        self.labels[label] = which
        return label

    def served(self, label: str, patience: float = PATIENCE) -> None:
        """Waits until the server says that it serves a version, and looks whether it does."""
        processes.until(f"the server to serve {label}; the receiver says {self.refits.complaints[-3:]}",
                        lambda: self.server.version() == label, patience)  # fmt: skip
        self.whole(label)

    def whole(self, label: str | None = None) -> None:
        """The server's answers are those of the weights that its label names, bit for bit."""
        label = label or self.server.version()
        found = self.probe()
        expected = self.probes.setdefault(self.labels[label], found)
        assert all(checks.same(a, b) for a, b in zip(found, expected, strict=True)), f"version {label} is not {self.labels[label]}"

    def probe(self) -> checks.Probe:
        return checks.probe(self.server, self.prompts, 16, BEST)

    def refit(self, which: str) -> str:
        """A version, published and served."""
        label = self.publish(which)
        self.served(label)
        return label

    def paused(self) -> bool:
        return bool(self.server.call("GET", "/is_paused")["is_paused"])

    # The receiver.

    def start_receiver(self) -> None:
        self.refits = report.Refits()
        self.receiver = self.world.receiver(self.server, self.capture, line=self.refits.line)

    def complaint(self, *words: str) -> str:
        """Waits until the receiver says something with all of the words."""

        def look() -> str:
            return next((c for c in list(self.refits.complaints) if all(w in c for w in words)), "")

        return str(processes.until(f"the receiver to say {words}; it says {self.refits.complaints}", look, PATIENCE))

    def load(self) -> Load:
        load = Load(self.server, self.prompts, tokens=16, threads=2)
        load.begin()
        return load

    def judge(self, load: Load) -> checks.Verdict:
        load.end()
        return checks.judge(load.records, {label: self.probes[which] for label, which in self.labels.items() if which in self.probes})


@pytest.fixture(scope="session")
def session_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("rl"))
    try:
        rig.start()
        yield rig
    finally:
        if rig.publisher is not None:
            rig.publisher.close(5)
        rig.world.end()


@pytest.fixture
def rig(session_rig: Rig) -> Iterator[Rig]:
    """The rig with version B served. Afterwards the engine must be whole, and take A and B again."""
    session_rig.refit("B")
    load = session_rig.load()
    yield session_rig
    try:
        session_rig.refit("A")
        session_rig.refit("B")
    finally:
        load.end()
    verdict = session_rig.judge(load)
    assert verdict.good, f"{verdict}: {(verdict.failed + verdict.mixed + verdict.wrong)[:5]}"
    assert verdict.answers > 0


class Background(threading.Thread):
    """Runs a call beside the test, and keeps what it gave."""

    def __init__(self, call: Any) -> None:
        super().__init__(daemon=True)
        self.call, self.value, self.error = call, None, None
        self.start()

    def run(self) -> None:
        try:
            self.value = self.call()
        except Exception as e:
            self.error = e

    def result(self) -> Any:
        self.join(PATIENCE)
        assert not self.is_alive(), "the call does not end"
        if self.error:
            raise self.error
        return self.value
