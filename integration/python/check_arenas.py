"""Recomputes the arenas of a demo with torch, and compares them with what the safetensors package reads.

Nothing here comes from Drydock but the capture file: the checkpoint is read by the safetensors package, a version's
values are computed by versions.py, and the copies are replayed by torch itself.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import torch
from safetensors import safe_open

import demo
import versions

DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "U16": torch.uint16, "I32": torch.int32,
    "U32": torch.uint32, "I64": torch.int64, "U64": torch.uint64, "F16": torch.float16, "BF16": torch.bfloat16,
    "F32": torch.float32, "F64": torch.float64, "C64": torch.complex64, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2, "F8_E4M3FNUZ": torch.float8_e4m3fnuz, "F8_E5M2FNUZ": torch.float8_e5m2fnuz, "F8_E8M0": torch.float8_e8m0fnu,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def content(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a tensor, row-major."""
    if tensor.numel() == 0:
        return np.zeros(0, dtype=np.uint8)
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()


def shaped(raw: np.ndarray, dtype: torch.dtype, shape) -> torch.Tensor:
    if raw.size == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.from_numpy(raw.copy()).view(dtype).reshape(tuple(shape))


def sources(checkpoint: pathlib.Path, seed: int, version: int) -> dict[str, torch.Tensor]:
    """All tensors of a folder in a version."""
    out = {}
    for file in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(file, "pt") as f:
            for name in f.keys():
                t = f.get_tensor(name)
                raw = versions.mutated(content(t), NAMES[t.dtype], name, seed, version)
                out[name] = shaped(raw, t.dtype, t.shape)
    return out


def apply(t, ops):
    """Replays a capture's operations."""
    for name, args in ops:
        if name != "__getitem__":
            t = getattr(t, name)(*args)
        elif isinstance(t, (tuple, list)):
            t = t[args[0]["int"]]
        else:
            t = t[tuple(key_of(a) for a in args)]
    return t


def key_of(arg: dict):
    if "int" in arg:
        return arg["int"]
    if "slice" in arg:
        return slice(*arg["slice"])
    return Ellipsis if "ellipsis" in arg else None


def parameters(capture: dict, case: dict, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The destination's parameters; what nobody writes keeps a pattern that is in no arena."""
    flat = []
    for p in case["params"]:
        nbytes = int(np.prod(p["shape"], dtype=np.int64)) * DTYPES[p["dtype"]].itemsize
        flat.append(torch.full((nbytes,), 0xEE, dtype=torch.uint8).view(DTYPES[p["dtype"]]))
    for source, ops, param, offset, shape, stride in case["copies"]:
        if torch.Size(shape).numel() > 0:
            view = apply(tensors[capture["sources"][source]["name"]], ops)
            torch.as_strided(flat[param], shape, stride, offset).copy_(view)
    for param, offset, shape, stride, value in case["fills"]:
        torch.as_strided(flat[param], shape, stride, offset).fill_(value)
    return {p["name"]: t.reshape(p["shape"]) for p, t in zip(case["params"], flat) if "excluded" not in p}


def compare(arena: pathlib.Path, want: dict[str, torch.Tensor]) -> int:
    """Compares one arena file; returns its bytes."""
    with safe_open(arena, "pt") as f:
        if set(f.keys()) != set(want):
            raise SystemExit(f"{arena}: tensors {sorted(set(f.keys()) ^ set(want))} are on one side only")
        nbytes = 0
        for name, expected in want.items():
            found = f.get_tensor(name)
            if found.dtype != expected.dtype or found.shape != expected.shape:
                raise SystemExit(f"{arena}: {name} is {found.dtype} {list(found.shape)}, expected {expected.dtype} {list(expected.shape)}")
            if not np.array_equal(content(found), content(expected)):
                first = int(np.flatnonzero(content(found) != content(expected))[0])
                raise SystemExit(f"{arena}: {name} differs from byte {first} of {content(found).size}")
            nbytes += content(found).size
    return nbytes


def check(refitctl: pathlib.Path, checkpoint: pathlib.Path, layout: str, receivers: int) -> None:
    with demo.standing(refitctl, checkpoint, layout=layout, receivers=receivers) as d:
        if len(d.arenas) != receivers:
            raise SystemExit(f"{checkpoint}: found arenas {d.arenas}, expected {receivers}")
        capture = json.loads(d.capture.read_text())
        tensors = sources(checkpoint, d.seed, d.version)
        total = 0
        for rank, arena in enumerate(d.arenas):
            (case,) = [c for c in capture["cases"] if (c["tp"], c["rank"], c["ep"]) == (receivers, rank, False)]
            total += compare(arena, parameters(capture, case, tensors))
    print(f"ok  {checkpoint.name:<10} {layout:<4} {receivers} receivers: {len(tensors)} tensors, {total} arena bytes equal", flush=True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--refitctl", type=pathlib.Path, required=True)
    p.add_argument("checkpoints", type=pathlib.Path, nargs="+")
    a = p.parse_args()
    layouts = [("fsdp", 2), ("tp", 2), ("hsdp", 1)]
    for number, checkpoint in enumerate(a.checkpoints):
        layout, receivers = layouts[number % len(layouts)]
        check(a.refitctl, checkpoint, layout, receivers)
    print(f"{len(a.checkpoints)} passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
