"""A real FSDP2 job of two processes trains and publishes, and a receiver serves exactly its weights at each step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BIN, PATIENCE, ROOT, World, until

torch = pytest.importorskip("torch")

JOB = """
import os, sys, time, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
import drydock

out, model_name = sys.argv[1:3]
dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
model = nn.Sequential(nn.Embedding(97, 24), nn.Linear(24, 37, bias=True), nn.Linear(37, 5))
for m in model:
    fully_shard(m, mesh=mesh)
fully_shard(model, mesh=mesh)
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
publisher = drydock.Publisher(model_name, model, dtype={"0.weight": "bfloat16"}, timeout=60)
for step in range(1, 4):
    model(torch.randint(0, 97, (16,))).square().mean().backward()
    opt.step()
    opt.zero_grad()
    if step == 2:  # the tensors move: a checkpoint was loaded
        state = {k: v.clone() for k, v in model.state_dict().items()}
        model.load_state_dict(state, assign=True)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    publisher.publish(step)
    whole = {n: p.full_tensor().detach() for n, p in model.named_parameters()}
    whole["0.weight"] = whole["0.weight"].to(torch.bfloat16)
    publisher.wait_served(step)
    if dist.get_rank() == 0:
        torch.save(whole, f"{out}/{step}.new")
        os.rename(f"{out}/{step}.new", f"{out}/{step}.pt")
    while not os.path.exists(f"{out}/{step}.seen"):
        time.sleep(0.05)
publisher.close()
dist.destroy_process_group()
"""

SOURCES = [
    ("0.weight", "BF16", (97, 24)), ("1.weight", "F32", (37, 24)), ("1.bias", "F32", (37,)),
    ("2.weight", "F32", (5, 37)), ("2.bias", "F32", (5,)),
]  # fmt: skip


@pytest.mark.parametrize("layout", ["plain", "blocks"])
def test_fsdp2(world: World, tmp_path: Path, layout: str) -> None:
    world.sidecar("--served-layout", layout)
    world.receiver(SOURCES)
    job = tmp_path / "job.py"
    job.write_text(JOB)
    child = torchrun(world, tmp_path, str(job), str(tmp_path), world.model)
    for step in range(1, 4):
        file = tmp_path / f"{step}.pt"
        until(f"step {step}", lambda file=file: file.exists() or child.poll() is not None, 3 * PATIENCE)
        assert child.poll() is None, (tmp_path / "job.log").read_text()[-2000:]
        whole, got = torch.load(file), world.served()
        assert sorted(got) == sorted(whole)
        for name, tensor in whole.items():
            assert got[name] == tensor.contiguous().view(torch.uint8).numpy().tobytes(), f"step {step}: {name} differs"
        (tmp_path / f"{step}.seen").touch()
    assert child.wait(PATIENCE) == 0, (tmp_path / "job.log").read_text()[-2000:]


def torchrun(world: World, folder: Path, *args: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "DRYDOCK_SOCKET": world.socket, "DRYDOCK_NATS": world.nats, "DRYDOCK_PUBLISHER": str(BIN / "publisher")}
    env["DRYDOCK_ARENA_DIR"] = str(world.shm / "publish")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *args]
    with open(folder / "job.log", "wb") as log:
        child = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    world.children.append(child)
    return child


def test_the_example_runs(world: World, tmp_path: Path) -> None:
    """It starts its own sidecar, and has fewer than 20 lines about publishing."""
    example = ROOT / "python" / "examples" / "train_fsdp2.py"
    assert sum("publish" in line or "drydock" in line for line in example.read_text().splitlines()) < 20
    child = torchrun(world, tmp_path, str(example), "--model", world.model, "--steps", "3")
    code = child.wait(3 * PATIENCE)
    log = (tmp_path / "job.log").read_text()
    assert code == 0 and "step 3: loss" in log, log[-2000:]
    assert "can't be read" not in log
