"""The sidecar's local API: HTTP and JSON over a Unix socket, with the standard library alone.

Every call opens a connection of its own, so a process that forks, an event loop or a thread beside this one disturbs
nothing, and a sidecar that was started again is simply asked again.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import errors

#: The version of the API that this client speaks.
API = 1

#: The longest wait that one request asks for, in seconds; longer waits are several requests.
POLL = 20.0

#: What is left for the answer itself, in seconds beside the wait.
ANSWER = 30.0

#: Bytes of an answer. That to 70,000 entries has some 10 MB.
MAX_ANSWER = 256 << 20


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("sidecar", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Spawn:
    """How to start a sidecar where none answers.

    It outlives this process for `grace` seconds, so that what was published stays readable while the trainer is started
    again, and leaves when nobody has had an arena for `exit_idle` seconds.
    """

    program: str | None = None  #: default: DRYDOCK_PUBLISHER, else `publisher` of the PATH
    nats: str | None = None  #: default: DRYDOCK_NATS, else the program's own default
    args: Sequence[str] = ()  #: further flags of `publisher serve`
    log: str | None = None  #: file that it writes to; default: the socket's name with .log
    wait: float = 30.0  #: seconds until it must answer
    grace: float = 600.0
    exit_idle: float = 30.0
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self, path: str, model: str) -> list[str]:
        program = self.program or os.environ.get("DRYDOCK_PUBLISHER") or shutil.which("publisher")
        if not program:
            raise errors.CannotSpawn(
                "no program to start: put `publisher` (`make build` makes bin/publisher) in the PATH, name it by DRYDOCK_PUBLISHER, "
                "or start a sidecar yourself"
            )
        command = [program, "serve", "--model", model, "--socket", path]
        command += ["--grace", f"{self.grace:g}s", "--exit-idle", f"{self.exit_idle:g}s"]
        if self.nats:
            command += ["--nats", self.nats]
        return command + list(self.args)


class Sidecar:
    """A sidecar by its socket. Methods return the API's JSON; docs/sidecar.md says what is in it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def call(self, method: str, path: str, body: object = None, wait: float = 0.0) -> dict[str, Any]:
        """One request. Raises `SidecarUnavailable` where nobody answers, and a `SidecarError` where it is refused."""
        connection = _Connection(self.path, timeout=wait + ANSWER)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            response = connection.getresponse()
            raw = response.read(MAX_ANSWER + 1)
        except (OSError, http.client.HTTPException) as e:
            raise errors.SidecarUnavailable(f"no answer on {self.path} to {method} {path}: {e or type(e).__name__}") from e
        finally:
            connection.close()
        return _decode(raw, response.status, f"{method} {path}")

    def status(self) -> dict[str, Any]:
        """What the sidecar says of itself."""
        return self.call("GET", "/v1/status")

    def ready(self) -> bool:
        """Whether a sidecar answers, of an API that this client speaks."""
        try:
            status = self.status()
        except errors.SidecarUnavailable:
            return False
        if status.get("api") != API:
            raise errors.SidecarUnavailable(f"the sidecar on {self.path} speaks API {status.get('api')}, this client {API}")
        return True

    def ensure(self, model: str, spawn: Spawn) -> None:
        """Starts a sidecar unless one answers. Several processes may try at once: one of them wins, and serves all."""
        if self.ready():
            return
        Path(self.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        command, log = spawn.command(self.path, model), spawn.log or self.path + ".log"
        with open(log, "ab") as out:
            began = out.tell()
            try:
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env={**os.environ, **spawn.env}
                )
            except OSError as e:
                raise errors.CannotSpawn(f"start {command[0]}: {e.strerror}") from e
        deadline = time.monotonic() + spawn.wait
        while not self.ready():
            code = child.poll()
            if time.monotonic() > deadline or code not in (None, 6):  # 6: another one was faster, or something is full
                if child.poll() is None:
                    child.terminate()
                kind = errors.CannotSpawn if code in (2, 4) else errors.SidecarUnavailable  # wrong flags or files stay wrong
                raise kind(f"{' '.join(command)} does not answer (exit code {code}): {_tail(log, began)}")
            time.sleep(0.02)
        _reap(child)


def _reap(child: subprocess.Popen[bytes]) -> None:
    """Keeps a reference to a child that is meant to outlive us, so that it isn't complained about."""
    _children.append(child)


_children: list[subprocess.Popen[bytes]] = []


def _tail(path: str, began: int = 0, nbytes: int = 600) -> str:
    """The last bytes of a log, none of those before `began`: they are of an earlier process."""
    try:
        with open(path, "rb") as f:
            f.seek(0, os.SEEK_END)
            f.seek(max(began, f.tell() - nbytes))
            return f.read().decode(errors="replace").strip()
    except OSError as e:
        return f"its log {path} can't be read: {e}"


def _decode(raw: bytes, status: int, what: str) -> dict[str, Any]:
    try:
        if len(raw) > MAX_ANSWER:
            raise ValueError(f"longer than {MAX_ANSWER} bytes")
        answer = json.loads(raw)
        if not isinstance(answer, dict):
            raise ValueError("not an object")
    except ValueError as e:
        raise errors.SidecarUnavailable(f"the answer to {what} (status {status}) is not the sidecar's: {e}") from e
    error = answer.get("error")
    if status != 200:
        if not isinstance(error, dict):
            raise errors.SidecarUnavailable(f"{what} was answered with status {status}, without a code")
        raise errors.of_code(
            str(error.get("code")), str(error.get("message")), bool(error.get("retry")), tuple(error.get("holders") or ())
        )
    return answer


def default_socket(model: str) -> str:
    """DRYDOCK_SOCKET, else a name that all ranks of a host agree on."""
    named = os.environ.get("DRYDOCK_SOCKET")
    if named:
        return named
    token = "".join(c if c.isalnum() or c in "-_" else "-" for c in model)[:64]
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/drydock-{os.getuid()}"
    return os.path.join(folder, f"drydock-{token}.sock")
