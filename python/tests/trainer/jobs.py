"""One rank of real distributed jobs, for test_layouts: builds the modules that a golden table names, cuts them with the real
library, and writes down what `drydock.found` finds, and whether the bytes are those of the boxes.

Every parameter is filled with its own flat index before it is cut, so what a rank holds says by itself which box it is.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard as OnDim
from torch.distributed.tensor import distribute_tensor

from drydock import Shard
from drydock.found import find


class Node(nn.Module):
    """A module that only holds others, and adds up its parameters so that there is something to run."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for p in self._parameters.values():
            if p is not None:
                x = x + p.float().sum() * 1e-9
        for m in self._modules.values():
            if m is not None:
                x = m(x)
        return x


def build(entries: dict[str, Any]) -> Node:
    """A module tree with parameters of these names and shapes, each filled with its flat index."""
    root = Node()
    for name, e in entries.items():
        *path, leaf = name.split(".")
        m: nn.Module = root
        for part in path:
            if part not in m._modules:
                m.add_module(part, Node())
            m = m.get_submodule(part)
        shape = e["global_shape"]
        n = 1
        for x in shape:
            n *= x
        m.register_parameter(leaf, nn.Parameter(torch.arange(n, dtype=torch.float32).view(shape)))
    return root


def layers(root: nn.Module) -> list[nn.Module]:
    return [m for name, m in root.named_modules() if name.rpartition(".")[0].endswith("layers")]


def cut(root: Node, mode: str, entries: dict[str, Any], config: dict[str, Any]) -> nn.Module:
    """Shards the tree as the golden job did."""
    from torch.distributed.fsdp import fully_shard

    world = dist.get_world_size()
    if mode == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        orig = bool(config["use_orig_params"])
        for m in layers(root):
            name = next(n for n, x in root.named_modules() if x is m)
            parent, _, leaf = name.rpartition(".")
            root.get_submodule(parent).register_module(leaf, FSDP(m, use_orig_params=orig, device_id=torch.device("cpu")))
        return FSDP(root, use_orig_params=orig, device_id=torch.device("cpu"))
    options: dict[str, Any] = {"mesh": init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))}
    if mode == "hsdp":
        options["mesh"] = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("rep", "shard"))
    if mode in ("tp_fsdp2", "ep_fsdp2"):
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "in"))
        options["mesh"] = mesh["dp"]
        for name, e in entries.items():
            if len(e["mesh"]["shape"]) == 2:
                inner(root, name, e["placements"][1], mesh["in"])
    dim1 = any(p == ["Shard(dim=1)"] for p in (e["placements"] for e in entries.values())) or "dim1" in config["id"]
    if dim1:
        by_id = {id(p): entries[n]["placements"][0] for n, p in root.named_parameters()}
        options["shard_placement_fn"] = lambda p: OnDim(1) if "dim=1" in by_id.get(id(p), "") else None
    for m in layers(root):
        fully_shard(m, **options)
    fully_shard(root, **options)
    return root


def inner(root: nn.Module, name: str, placement: str, mesh: DeviceMesh) -> None:
    """Cuts one parameter over the inner mesh, as tensor and expert parallelism do before FSDP."""
    path, _, leaf = name.rpartition(".")
    m = root.get_submodule(path)
    dim = int(placement.partition("dim=")[2].rstrip(")").partition(",")[0])
    m.register_parameter(leaf, nn.Parameter(distribute_tensor(m.get_parameter(leaf).data, mesh, [OnDim(dim)])))


def indices(shard: Shard) -> torch.Tensor:
    """What the bytes of a box must be."""
    flat = torch.zeros((), dtype=torch.int64)
    step = 1
    grids = []
    for n in reversed(shard.shape):
        grids.append(step)
        step *= n
    for d, ((lo, hi), stride) in enumerate(zip(shard.box, reversed(grids), strict=True)):
        view = [1] * len(shard.box)
        view[d] = hi - lo
        flat = flat + (torch.arange(lo, hi) * stride).view(view)
    return flat.expand(shard.sizes)


def report(shards: list[Shard]) -> list[dict[str, Any]]:
    return [
        {
            "name": s.name, "dtype": s.dtype, "global_shape": list(s.shape), "box": [list(x) for x in s.box],
            "right": bool(torch.equal(s.data.to(torch.int64), indices(s))),
        }
        for s in shards
    ]  # fmt: skip


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    results: dict[str, Any] = {}
    for file in sorted(folder.glob("*.json.gz")):
        with gzip.open(file) as f:
            golden = json.load(f)
        mode = golden["config"].get("mode")
        if mode is None or len(golden["ranks"]) != world:
            continue
        try:
            results[file.name] = job(golden, mode)
        except Exception as e:
            results[file.name] = {"error": f"{type(e).__name__}: {e}"}
        dist.barrier()
    (out / f"{world}.{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def job(golden: dict[str, Any], mode: str) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for r in golden["ranks"]:
        for e in r["entries"]:
            entries.setdefault(e["name"], e)
    model = cut(build(entries), mode, entries, golden["config"])
    before = report(find(model).shards)
    result: dict[str, Any] = {"entries": before}
    if mode != "fsdp1" and golden["config"].get("train", True):
        result["trap"] = trap(model)
        result["again"] = report(find(model).shards) == before
    if mode == "fsdp1":
        model(torch.zeros(1, requires_grad=True)).sum().backward()
        result["again"] = report(find(model).shards) == before
    return result


def trap(model: nn.Module) -> str:
    """After a forward without a backward the root's parameters are whole: that must be said, and reshard() mends it."""
    with torch.no_grad():
        model(torch.zeros(1))
    try:
        find(model)
        said = "nothing"
    except Exception as e:
        said = f"{type(e).__name__}: {e}"
    model.reshard()
    return said


if __name__ == "__main__":
    main()
