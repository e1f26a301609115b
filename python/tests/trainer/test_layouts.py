"""What is found in real distributed modules is what the tables of real jobs say (../shared/layouts), box by box, and what the
bytes say. Runs each kind of job on two or four processes with gloo."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, ROOT

pytest.importorskip("torch")

from drydock.found import from_sharded_state_dict

LAYOUTS = Path(os.environ.get("DRYDOCK_LAYOUTS", ROOT.parent / "shared" / "layouts"))
FILES = sorted(p.name for p in LAYOUTS.glob("*.json.gz"))


def golden(name: str) -> dict[str, Any]:
    with gzip.open(LAYOUTS / name) as f:
        table: dict[str, Any] = json.load(f)
    return table


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Any]:
    """What each rank of each job found, by file and rank."""
    if not FILES:
        pytest.skip(f"no tables in {LAYOUTS}")
    out, found = tmp_path_factory.mktemp("jobs"), {}
    for world in (2, 4):
        launch(world, out)
        for rank in range(world):
            for file, result in json.loads((out / f"{world}.{rank}.json").read_text()).items():
                found[file, rank] = result
    return found


def launch(world: int, out: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    ranks = []
    for rank in range(world):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        with open(out / f"{world}.{rank}.log", "wb") as log:
            command = [sys.executable, str(Path(__file__).with_name("jobs.py")), str(LAYOUTS), str(out)]
            ranks.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
    for rank, child in enumerate(ranks):
        assert child.wait(6 * PATIENCE) == 0, (out / f"{world}.{rank}.log").read_text()[-2000:]


def named(entries: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Boxes by name; empty ones count as one, wherever they are."""
    out: dict[str, list[Any]] = {}
    for e in entries:
        empty = any(lo == hi for lo, hi in e["box"])
        out.setdefault(e["name"], []).append((e["dtype"], tuple(e["global_shape"]), None if empty else e["box"]))
    return out


@pytest.mark.parametrize("file", [f for f in FILES if not f.startswith("megatron")])
def test_boxes_are_those_of_the_real_job(file: str, results: dict[tuple[str, int], Any]) -> None:
    for r in golden(file)["ranks"]:
        got = results[file, r["rank"]]
        assert "error" not in got, got["error"]
        assert all(e["right"] for e in got["entries"]), [e["name"] for e in got["entries"] if not e["right"]]
        want = named(r["entries"])
        have = {n: b for n, b in named(got["entries"]).items() if n in want or any(x[2] is not None for x in b)}
        assert have == want
        assert got.get("again", True), "the same tensors were found differently after a step"


@pytest.mark.parametrize("file", [f for f in FILES if f.startswith("fsdp2_qwen3_")])
def test_whole_parameters_after_a_forward_are_refused(file: str, results: dict[tuple[str, int], Any]) -> None:
    assert "reshard()" in results[file, 0]["trap"]


class Entry:
    """What Megatron's ShardedTensor has."""

    def __init__(self, e: dict[str, Any], data: Any, axes: int) -> None:
        self.key, self.data, self.prepend_axis_num = e["name"], data, axes
        self.global_shape, self.global_offset = tuple(e["global_shape"]), tuple(lo for lo, _ in e["box"])
        self.local_shape, self.replica_id, self.allow_shape_mismatch = tuple(data.shape), e["replica_id"], False
        self.flattened_range = None


@pytest.mark.parametrize("file", [f for f in FILES if f.startswith("megatron")])
def test_megatron_tables_are_read(file: str) -> None:
    import torch

    for r in golden(file)["ranks"]:
        state: dict[str, Any] = {}
        for i, e in enumerate(r["entries"]):
            axes = sum(1 for n in e["local_stride"] if n == 0) if 0 in e["local_stride"] else 0
            sizes = e["local_shape"][axes:]
            data = torch.arange(10_000, dtype=torch.float32).as_strided(sizes, e["local_stride"][axes:], e["storage_offset"])
            state[f"{i}"] = [Entry(e, data, axes)] if i % 2 else {"deep": Entry(e, data, axes)}
        got = from_sharded_state_dict(state).shards
        assert [(s.name, list(s.shape), [list(x) for x in s.box]) for s in got] == [
            (e["name"], e["global_shape"], e["box"]) for e in r["entries"]
        ]
        assert all(tuple(s.data.shape) == s.sizes for s in got)
