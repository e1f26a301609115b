"""A NATS server, Drydock's programs, and a world made of them, for tests of the trainer's side.

Everything is a real process: what is tested is what happens between them. DRYDOCK_BIN names the folder of the programs
(default: bin/ of the repository, which `make build` fills); the NATS server is built from the module that go.mod pins.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("DRYDOCK_BIN", ROOT / "bin"))
CACHE = ROOT / ".cache"

#: Seconds that bound every wait.
PATIENCE = 40.0


def until(what: str, check: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Waits until check() is true, and returns what it gave."""
    deadline = time.monotonic() + patience
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"waited {patience:g} s for {what}")
        time.sleep(0.02)


def nats_server() -> Path:
    exe = CACHE / "python-tests" / "nats-server"
    if not exe.exists():
        go = os.environ.get("GO", "go")
        if shutil.which(go) is None:
            pytest.skip("no Go to build a NATS server with")
        exe.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([go, "build", "-o", str(exe), "github.com/nats-io/nats-server/v2"], cwd=ROOT, check=True)
    return exe


@contextlib.contextmanager
def serve_nats(store: Path) -> Iterator[str]:
    """Runs a NATS server on a free port."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with open(store / "log", "wb") as log:
        command = [nats_server(), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(store)]
        server = subprocess.Popen(command, stdout=log, stderr=log)

    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    try:
        until("the NATS server", answers)
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a NATS server that ends with the session."""
    if not (BIN / "publisher").exists():
        pytest.skip(f"no programs in {BIN}: make build")
    with serve_nats(tmp_path_factory.mktemp("nats")) as url:
        yield url


class World:
    """One model on the session's server, with its processes."""

    def __init__(self, nats: str, folder: Path, shm: Path) -> None:
        self.nats, self.folder, self.shm = nats, folder, shm
        self.model = "m-" + shm.name
        self.socket = str(shm / "s")  # short: sockets have short names
        self.children: list[subprocess.Popen[bytes]] = []
        self.run("refitctl", "init", "--memory", "--timeout", "20s")

    def flags(self) -> list[str]:
        return ["--nats", self.nats, "--model", self.model]

    def run(self, program: str, *args: str) -> str:
        done = subprocess.run([BIN / program, *args, *self.flags()], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name: str, *args: str) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.log", "ab") as log:
            child = subprocess.Popen([str(BIN / args[0]), *args[1:], *self.flags()], stdout=log, stderr=log)
        self.children.append(child)
        return child

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def sidecar(self, *args: str, name: str = "sidecar") -> subprocess.Popen[bytes]:
        """Starts a sidecar and waits until it answers."""
        child = self.start(
            name, "publisher", "serve", "--socket", self.socket, "--arena-dir", str(self.shm / "publish"), "--listen", "127.0.0.1:0", *args
        )
        from drydock import Sidecar

        until("the sidecar", Sidecar(self.socket).ready)
        return child

    def receiver(self, sources: Sequence[tuple[str, str, Sequence[int]]], *args: str, name: str = "r") -> subprocess.Popen[bytes]:
        """Starts a receiver that wants every source whole, as (name, safetensors dtype, shape)."""
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(whole_capture(sources)))
        return self.start(
            name, "receiver", "--name", name, "--capture", str(file), "--arena-dir", str(self.shm / "arenas"), *args
        )

    def served(self, name: str = "r") -> dict[str, bytes]:
        """The bytes of each parameter that a receiver serves."""
        return read_safetensors(self.shm / "arenas" / name / "current" / "rank-0.safetensors")

    def end(self) -> None:
        for child in reversed(self.children):
            child.send_signal(signal.SIGTERM)
        for child in self.children:
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@pytest.fixture
def world(nats: str, tmp_path: Path) -> Iterator[World]:
    """A model of its own. What it puts into shared memory is removed."""
    import tempfile

    shm = Path(tempfile.mkdtemp(prefix="dd", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    w = World(nats, tmp_path, shm)
    yield w
    w.end()
    shutil.rmtree(shm, ignore_errors=True)


def row_major(shape: Sequence[int]) -> list[int]:
    strides, step = [0] * len(shape), 1
    for d in reversed(range(len(shape))):
        strides[d], step = step, step * shape[d]
    return strides


def whole_capture(sources: Sequence[tuple[str, str, Sequence[int]]]) -> dict[str, Any]:
    """A capture of one rank that copies each source to a parameter of its name."""
    listed = [{"name": n, "dtype": d, "shape": list(s)} for n, d, s in sources]
    case = {
        "arch": "test", "tp": 1, "rank": 0, "ep": False, "params": listed, "fills": [], "alias": {}, "unread": [],
        "copies": [[i, [], i, 0, list(s), row_major(s)] for i, (_, _, s) in enumerate(sources)],
    }  # fmt: skip
    head = {"schema": "drydock.capture.v1", "engine": "test", "family": "test", "model_type": "test", "config": {}}
    return {**head, "sources": listed, "cases": [case]}


def read_safetensors(path: Path) -> dict[str, bytes]:
    raw = path.read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + n])
    header.pop("__metadata__", None)
    data = raw[8 + n :]
    return {name: data[t["data_offsets"][0] : t["data_offsets"][1]] for name, t in header.items()}
