"""The client against sidecars that are not there, or not sidecars; and what it makes of its environment. No process but this."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from drydock import (
    CannotSpawn,
    DrydockError,
    Held,
    Publisher,
    Sidecar,
    SidecarError,
    SidecarUnavailable,
    Spawn,
    errors,
    launch,
    sidecar,
    whole,
)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[tuple[Sidecar, list[bytes], list[bytes]]]:
    """A socket that gives the answers that are put into a list, one a connection, and keeps what it was asked."""
    path = str(tmp_path / "s")
    answers: list[bytes] = []
    asked: list[bytes] = []
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                got = b""
                while not complete(got):
                    got += client.recv(65536)
                asked.append(got)
                client.sendall(answers.pop(0) if answers else b"")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield Sidecar(path), answers, asked
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)


def complete(request: bytes) -> bool:
    """Whether a request has come with its body."""
    head, end, body = request.partition(b"\r\n\r\n")
    length = [int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length")]
    return bool(end) and len(body) >= sum(length)


def http(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        http(200, b"{"),
        http(200, b"[]"),
        http(500, b"{}"),
        http(502, b"<html>"),
        b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_what_is_no_sidecar_is_not_believed(fake: tuple[Sidecar, list[bytes], list[bytes]], answer: bytes) -> None:
    client, answers, _ = fake
    answers.append(answer)
    with pytest.raises(SidecarUnavailable):
        client.status()


def test_codes_become_classes(fake: tuple[Sidecar, list[bytes], list[bytes]]) -> None:
    client, answers, asked = fake
    answers.append(http(409, b'{"error": {"code": "held", "message": "m", "retry": true, "holders": ["r0"]}}'))
    with pytest.raises(Held, match="read by r0") as told:
        client.call("POST", "/v1/x", {"a": 1})
    assert told.value.retry and told.value.holders == ("r0",) and isinstance(told.value, TimeoutError)
    assert asked[0].startswith(b"POST /v1/x HTTP/1.1\r\n") and asked[0].endswith(b'{"a": 1}')
    answers.append(http(418, b'{"error": {"code": "of_the_future", "message": "m"}}'))
    with pytest.raises(SidecarError) as other:
        client.status()
    assert type(other.value) is SidecarError and other.value.code == "of_the_future"
    assert {c for c in errors._CLASSES if not issubclass(errors._CLASSES[c], SidecarError)} == set()


def test_another_api_is_said(fake: tuple[Sidecar, list[bytes], list[bytes]]) -> None:
    client, answers, _ = fake
    answers.append(http(200, b'{"api": 2}'))
    with pytest.raises(SidecarUnavailable, match="speaks API 2"):
        client.ready()


def test_nobody_there(tmp_path: Path) -> None:
    assert not Sidecar(tmp_path / "none").ready()
    tensors = {"w": whole("w", "uint8", (1,), b"x")}
    with pytest.raises(SidecarUnavailable, match="no answer on"):
        Publisher("m", tensors, socket=tmp_path / "none", timeout=0.1)
    with pytest.raises(SidecarUnavailable, match=r"exit code 3.*no such model"):
        program = tmp_path / "publisher"
        program.write_text("#!/bin/sh\necho no such model\nexit 3\n")
        program.chmod(0o700)
        Publisher("m", tensors, socket=tmp_path / "none", spawn=Spawn(program=str(program)), timeout=0.1)


def script(path: Path, body: str) -> Spawn:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return Spawn(program=str(path))


def test_what_cannot_be_started_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {"w": whole("w", "uint8", (1,), b"x")}
    (tmp_path / "none.log").write_text("of an earlier process\n")
    wrong = script(tmp_path / "publisher", "echo unknown flag >&2; exit 2")
    with pytest.raises(CannotSpawn, match=r"exit code 2.*: unknown flag$"):  # at once, and without what was in the log before
        Publisher("m", tensors, socket=tmp_path / "none", spawn=wrong)
    with pytest.raises(CannotSpawn, match="start /no/such/program"):
        Publisher("m", tensors, socket=tmp_path / "none", spawn=Spawn(program="/no/such/program"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("DRYDOCK_PUBLISHER", raising=False)
    with pytest.raises(CannotSpawn, match="make build"):
        Publisher("m", tensors, socket=tmp_path / "none", spawn=True)


def test_waiting_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    absent = script(tmp_path / "publisher", "echo no such model; exit 3")
    with pytest.raises(SidecarUnavailable, match="no such model"):
        Publisher("m", {"w": whole("w", "uint8", (1,), b"x")}, socket=tmp_path / "none", spawn=absent, timeout=1.8)
    assert [r.message.count("no such model") for r in caplog.records] == [1]


def test_spawn_names_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("DRYDOCK_PUBLISHER", raising=False)
    with pytest.raises(SidecarUnavailable, match="DRYDOCK_PUBLISHER"):
        Spawn().command("/s", "m")
    monkeypatch.setenv("DRYDOCK_PUBLISHER", "/bin/p")
    assert Spawn(nats="nats://n", args=["--slots", "3"], grace=1.5).command("/s", "m") == [
        "/bin/p", "serve", "--model", "m", "--socket", "/s", "--grace", "1.5s", "--exit-idle", "30s", "--nats", "nats://n", "--slots", "3",
    ]  # fmt: skip


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that no launcher has touched."""
    for name in list(os.environ):
        if name in ("RANK", "WORLD_SIZE") or name.startswith(("DRYDOCK_", "TORCHELASTIC_", "SLURM_")):
            monkeypatch.delenv(name)
    return monkeypatch


def test_the_launch(bare: pytest.MonkeyPatch) -> None:
    assert launch.rank_and_world(None, None) == (0, 1)
    assert launch.job(None, 1) != launch.job(None, 1), "each launch has a name of its own"
    with pytest.raises(DrydockError, match="--rdzv-id"):
        launch.job(None, 2)
    bare.setenv("RANK", "3")
    bare.setenv("WORLD_SIZE", "4")
    assert launch.rank_and_world(None, None) == (3, 4) and launch.rank_and_world(0, 1) == (0, 1)
    for rank, world in ((1, None), (None, 2), (2, 2), (-1, 2)):
        with pytest.raises(ValueError):
            launch.rank_and_world(rank, world)
    bare.setenv("SLURM_JOB_ID", "7")
    assert launch.job(None, 4) == "slurm-7.0"
    bare.setenv("TORCHELASTIC_RUN_ID", "none")
    assert launch.job(None, 4) == "slurm-7.0", "torchrun says none where nobody gave a name"
    bare.setenv("TORCHELASTIC_RUN_ID", "abc")
    bare.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert launch.job(None, 4) == "abc.2"
    bare.setenv("DRYDOCK_JOB", "mine")
    assert launch.job(None, 4) == "mine" and launch.job("given", 4) == "given"


def test_the_socket(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert sidecar.default_socket("org/a.b") == "/run/user/7/drydock-org-a-b.sock"
    bare.setenv("DRYDOCK_SOCKET", "/x")
    assert sidecar.default_socket("m") == "/x"
