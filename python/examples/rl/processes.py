"""The processes of the example: how each is started, waited for and ended. Nothing of them is left behind.

The vocabulary: a child is a process in a group of its own, with a log; a world is the set of them around one model.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from server import Server

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("DRYDOCK_BIN", ROOT / "bin"))
NATS_SERVER = os.environ.get("DRYDOCK_NATS_SERVER", str(ROOT / ".cache/demo-rl/nats-server"))

#: Seconds until a vLLM server must be ready: one minute alone, several beside other work.
START = 600.0


class Died(RuntimeError):
    """A process ended that should not have."""


def until(what: str, check: Callable[[], Any], patience: float = 60.0, alive: Sequence[Child] = ()) -> Any:
    """Waits until check() is true, and returns what it gave. Gives up at once where a child that it needs has died."""
    deadline = time.monotonic() + patience
    while True:
        if value := check():
            return value
        for child in alive:
            if child.process.poll() is not None:
                raise Died(f"{child.name} ended with status {child.process.returncode} while waiting for {what}:\n{child.tail()}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience:g} s for {what}")
        time.sleep(0.02)


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Child:
    """A process, the leader of its own group, whose output goes to a log and, line by line, to whoever wants it."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, env: dict[str, str] | None = None,
                 line: Callable[[str], None] | None = None) -> None:  # fmt: skip
        self.name, self.log = name, log
        out = open(log, "ab", buffering=0)  # noqa: SIM115 (closed by the copier, or below)
        try:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if line else out, stderr=subprocess.STDOUT,
                start_new_session=True, env={**os.environ, **(env or {})},
            )  # fmt: skip
        finally:
            if line is None:
                out.close()
        self._copier: threading.Thread | None = None
        if line is not None:
            self._copier = threading.Thread(target=self._copy, args=(out, line), daemon=True)
            self._copier.start()

    def _copy(self, out: Any, line: Callable[[str], None]) -> None:
        assert self.process.stdout is not None
        with out:
            for raw in self.process.stdout:
                out.write(raw)
                line(raw.decode(errors="replace").rstrip("\n"))

    def tail(self, nbytes: int = 1500) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-nbytes:].decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL, to the whole group: nothing is tidied up."""
        self._signal(signal.SIGKILL)
        self.process.wait()

    def end(self, patience: float = 20.0) -> None:
        """SIGTERM, and SIGKILL to what is left of the group."""
        if self.process.poll() is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        self._signal(signal.SIGKILL)
        self.process.wait()
        if self._copier is not None:
            self._copier.join(5)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class World:
    """NATS, one model, and the processes around it. `end` stops them all and removes what they put into shared memory."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.model = folder, model
        self.logs, self.traces = folder / "logs", folder / "traces"
        self.shm = Path("/dev/shm") / f"drydock-rl-{os.getpid()}"
        self.sockets = self.shm  # short: names of sockets have at most 107 bytes
        for f in (self.logs, self.traces, self.shm):
            f.mkdir(parents=True, exist_ok=True)
        self.nats = f"nats://127.0.0.1:{free_port()}"
        self.children: list[Child] = []
        self._before = set(_left_by_vllm())

    def start(self, name: str, argv: Sequence[str], **more: Any) -> Child:
        """Starts a child of any program."""
        child = Child(name, [str(a) for a in argv], self.logs / f"{name}.log", **more)
        self.children.append(child)
        return child

    def common(self, traces: bool = True) -> list[str]:
        """Flags of all of Drydock's programs."""
        flags = ["--nats", self.nats, "--model", self.model]
        return [*flags, "--trace-dir", str(self.traces), "--log-format", "json"] if traces else flags

    def start_nats(self) -> Child:
        """A server of its own, and the model's stream and buckets in it."""
        port = self.nats.rsplit(":", 1)[1]
        child = self.start("nats", [NATS_SERVER, "-a", "127.0.0.1", "-p", port, "-js", "-sd", self.folder / "nats"])
        until("the NATS server", lambda: _listens(int(port)), alive=[child])
        done = subprocess.run([BIN / "refitctl", "init", "--memory", *self.common(traces=False)], capture_output=True, text=True)
        if done.returncode:
            raise Died(f"refitctl init: {done.stderr}")
        return child

    def sidecar(self, rank: int) -> Child:
        """The sidecar of one trainer rank."""
        from drydock import Sidecar

        path = self.sockets / f"rank-{rank}.sock"
        argv = [BIN / "publisher", "serve", *self.common(), "--socket", path, "--listen", "127.0.0.1:0"]
        child = self.start(f"sidecar-{rank}", [*argv, "--arena-dir", self.shm / f"publish-{rank}"])
        until(f"sidecar {rank}", Sidecar(path).ready, alive=[child])
        return child

    def checkpoint(self, folder: Path) -> None:
        """The policy that everything starts from: made once for each text of tiny.py, then copied."""
        script, made = Path(__file__).with_name("tiny.py"), ROOT / ".cache/demo-rl/init"
        by = made / "made-by.txt"
        if not by.exists() or by.read_bytes() != script.read_bytes():
            shutil.rmtree(made, ignore_errors=True)
            with open(self.logs / "tiny.log", "wb") as log:
                argv = [sys.executable, str(script), str(made)]
                subprocess.run(argv, check=True, stdout=log, stderr=log, env={**os.environ, **vllm_environ()})
            shutil.copy(script, by)
        shutil.copytree(made, folder)

    def capture(self, checkpoint: Path, tp: int) -> Path:
        """What each rank of the server copies out of the checkpoint: recorded once, then taken from the cache."""
        out = self.folder / "capture.json.gz"
        argv = [Path(sys.executable).parent / "drydock-capture", "vllm", "--model", checkpoint, "--tp", str(tp), "--out", out]
        argv += ["--cache", ROOT / ".cache/vllm/captures"]
        with open(self.logs / "capture.log", "wb") as log:
            subprocess.run(argv, check=True, stdout=log, stderr=log, env={**os.environ, **vllm_environ()})
        return out

    def receiver(
        self, engine: Server, capture: Path, tp: int = 1, name: str = "rollout", line: Callable[[str], None] | None = None
    ) -> Child:
        """The receiver of one server: it stages each version into an arena and has the server take it."""
        ranks = [flag for r in range(tp) for flag in ("--ranks", str(r))]
        argv = [BIN / "receiver", *self.common(), "--name", name, "--capture", capture, "--tp", str(tp), *ranks]
        argv += ["--arena-dir", self.shm / "arenas", "--installer", "vllm", "--engine-url", f"http://{engine.host}:{engine.port}"]
        return self.start(f"receiver-{name}", argv, line=line, env={"MX_REFIT_TIMING_STDOUT": "1"})

    def vllm(self, checkpoint: Path, tp: int = 1, port: int = 0, backend: bool = True) -> tuple[Child, Server]:
        """A server of a checkpoint. The one flag that Drydock needs is --weight-transfer-config. Wait for it by `ready`."""
        port = port or free_port()
        argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", checkpoint, "--served-model-name", "policy"]
        argv += ["--host", "127.0.0.1", "--port", str(port), "-tp", str(tp), *(f"--{k.replace('_', '-')}={v}" for k, v in LIMITS.items())]
        argv += ["--dtype", "bfloat16", "--enforce-eager", "--enable-scale-out"]  # the last one for /inference/v1/generate
        if backend:
            argv += ["--weight-transfer-config", json.dumps({"backend": "drydock"})]
        return self.start(f"vllm-{port}", argv, env=vllm_environ(tp)), Server("127.0.0.1", port)

    def trainer(self, script: str, flags: Sequence[str], ranks: int, line: Callable[[str], None]) -> Child:
        """A torchrun of this folder's script."""
        argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        argv += [str(Path(__file__).with_name(script)), "--model", self.model, *flags]
        return self.start("trainer", argv, line=line, env={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"})

    def trace(self, version: str) -> str:
        """The tree of one version, out of the files of all processes."""
        argv = [BIN / "refitctl", "trace", version, "--model", self.model, "--dir", self.traces]
        return subprocess.run(argv, capture_output=True, text=True).stdout

    def end(self) -> None:
        """Ends all children, the last one first. May be repeated."""
        for child in reversed(self.children):
            child.end()
        self.children.clear()
        shutil.rmtree(self.shm, ignore_errors=True)
        new = set(_left_by_vllm()) - self._before
        for path in new - _mapped(new):
            Path(path).unlink(missing_ok=True)


#: Sizes of the server, and of the fresh ones that it is compared with.
LIMITS = {"max_model_len": 512, "max_num_seqs": 16}


def vllm_environ(tp: int = 1) -> dict[str, str]:
    """What vLLM needs on a machine without a GPU and a network. Dev mode has the calls that update weights."""
    env = {
        "HF_HUB_OFFLINE": "1", "VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
    }  # fmt: skip
    return {**env, "VLLM_CPU_OMP_THREADS_BIND": "|".join(map(str, range(tp)))} if tp > 1 else env


def ready(child: Child | None, server: Server) -> None:
    """Waits until a server answers, its slow first completion included. The child is None where somebody else has started it."""
    until(f"vLLM on port {server.port} to be ready", server.healthy, START, alive=[child] if child else [])
    server.generate(list(range(1, 17)), tokens=2)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _left_by_vllm() -> list[str]:
    """What a vLLM server has in shared memory, and leaves there where it is killed: 400 MB of queues among it."""
    return [f for pattern in ("vllm_dist_*", "psm_*", "sem.mp-*") for f in glob.glob(f"/dev/shm/{pattern}")]


def _mapped(paths: set[str]) -> set[str]:
    """Those of the files that some process still maps: another server's, perhaps."""
    found: set[str] = set()
    for maps in glob.glob("/proc/[0-9]*/maps") if paths else []:
        with contextlib.suppress(OSError):
            text = Path(maps).read_text()
            found |= {p for p in paths if p in text}
    return found
