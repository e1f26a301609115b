"""Does what a capture says with real tensors, in the plainest way: to compare captures, and to make arenas from a checkpoint.

It shares nothing with the receiver's planner, which it is used to test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from drydock.capture import schema


def view(t: Any, ops: list[schema.Op]) -> torch.Tensor:
    """Applies a chain of operations."""
    for op, args in ops:
        if op == "__getitem__":
            t = t[args[0]["int"]] if isinstance(t, (tuple, list)) else t[tuple(map(_index, args))]
        elif op == "index_select":
            t = t.index_select(args[0], torch.tensor(args[1]))
        else:
            t = getattr(t, op)(*args)
    return t


def _index(k: dict[str, Any]) -> Any:
    if "int" in k:
        return k["int"]
    if "slice" in k:
        return slice(*k["slice"])
    return Ellipsis if "ellipsis" in k else None


def params(
    case: schema.Case, make: Callable[[schema.Param], torch.Tensor], source: Callable[[int], torch.Tensor]
) -> Iterator[tuple[schema.Param, torch.Tensor]]:
    """Yields every parameter that copies make, filled in. make gives the empty one, contiguous."""
    flat = [None if p.excluded else make(p) for p in case.params]
    for c in case.copies:
        torch.as_strided(flat[c.param], c.shape, c.stride, c.offset).copy_(view(source(c.source), c.ops))
    for f in case.fills:
        torch.as_strided(flat[f.param], f.shape, f.stride, f.offset).fill_(f.value)
    for p, t in zip(case.params, flat, strict=False):
        if t is not None:
            yield p, t


def origins(case: schema.Case, sources: list[schema.Source]) -> dict[str, torch.Tensor]:
    """For each parameter, which element of which source each of its elements is: -1 for none, -2 - k for the k-th constant.

    Two captures that mean the same have the same, however they say it.
    """
    base, at = [], 0
    for s in sources:
        base.append(at)
        at += math.prod(s.shape)
    numbers: dict[float, int] = {}

    def source(i: int) -> torch.Tensor:
        n = math.prod(sources[i].shape)
        return torch.arange(base[i], base[i] + n).reshape(sources[i].shape)

    constants = schema.Case(case.arch, case.tp, case.rank, case.ep, case.params, case.copies)
    for f in case.fills:
        code = -2 - numbers.setdefault(f.value, hash(f.value) % 1000)
        constants.fills.append(schema.Fill(f.param, f.offset, f.shape, f.stride, code))
    return {p.name: t for p, t in params(constants, lambda p: torch.full(p.shape, -1, dtype=torch.int64), source)}


def difference(a: schema.Case, b: schema.Case, sources: list[schema.Source]) -> list[str]:
    """What two captures of one rank do not agree on; empty: they mean the same."""
    said = []
    for what, x, y in (
        ("parameters", {p.name: (p.dtype, p.shape, bool(p.excluded)) for p in a.params},
         {p.name: (p.dtype, p.shape, bool(p.excluded)) for p in b.params}),
        ("aliases", a.alias, b.alias),
        ("unread sources", {sources[i].name: 0 for i in a.unread}, {sources[i].name: 0 for i in b.unread}),
    ):  # fmt: skip
        said += [f"{what}: {k}: {x.get(k)} and {y.get(k)}" for k in sorted(x.keys() | y.keys()) if x.get(k) != y.get(k)]
    if said:
        return said
    left, right = origins(a, sources), origins(b, sources)
    for name, t in left.items():
        n = int((t != right[name]).sum())
        if n:
            said.append(f"{name}: {n} of {t.numel()} elements come from elsewhere")
        if bool((t == -1).any()):
            said.append(f"{name}: {int((t == -1).sum())} elements come from nowhere")
    return said
