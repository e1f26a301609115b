"""The capture file, drydock.capture.v1: JSON, gzipped, the same bytes for the same content.

Standard library alone.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

SCHEMA = "drydock.capture.v1"

# One view operation and its arguments, as in torch: ["narrow", [0, 16, 8]].
Op = list[Any]


@dataclass
class Source:
    """One tensor of the checkpoint."""

    name: str
    dtype: str  # as safetensors names it
    shape: list[int]


@dataclass
class Param:
    """One parameter of a rank, contiguous and row-major at load time."""

    name: str
    dtype: str
    shape: list[int]
    excluded: str = ""  # why no copy makes it; empty: copies and fills make all of it


@dataclass
class Copy:
    """source, seen through ops, goes to a place of a parameter. Offsets and strides in elements."""

    source: int
    ops: list[Op]
    param: int
    offset: int
    shape: list[int]
    stride: list[int]


@dataclass
class Fill:
    """A place of a parameter that the loader sets to a constant."""

    param: int
    offset: int
    shape: list[int]
    stride: list[int]
    value: float


@dataclass
class Case:
    """One rank."""

    arch: str
    tp: int
    rank: int
    ep: bool
    params: list[Param] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    fills: list[Fill] = field(default_factory=list)
    alias: dict[str, str] = field(default_factory=dict)
    unread: list[int] = field(default_factory=list)
    elsewhere: list[int] = field(default_factory=list)  # sources that go to what is no parameter at load time; not in the file


@dataclass
class Capture:
    """All simulated ranks of one model."""

    engine: str
    family: str
    model_type: str
    config: dict[str, Any]
    sources: list[Source]
    cases: list[Case]

    def case(self, tp: int, rank: int, ep: bool = False) -> Case:
        """The case of one rank; KeyError where there is none."""
        for c in self.cases:
            if (c.tp, c.rank, c.ep) == (tp, rank, ep):
                return c
        raise KeyError(f"capture of {self.family} has no case for tensor parallel {tp}, rank {rank}, expert parallel {ep}")


def encode(c: Capture) -> bytes:
    """The file's bytes."""
    body = {
        "schema": SCHEMA, "engine": c.engine, "family": c.family, "model_type": c.model_type, "config": c.config,
        "sources": [{"name": s.name, "dtype": s.dtype, "shape": s.shape} for s in c.sources],
        "cases": [_case(k) for k in c.cases],
    }  # fmt: skip
    # No time and no name in the gzip header: equal content, equal bytes.
    return gzip.compress(json.dumps(body, separators=(",", ":")).encode(), mtime=0)


def _case(c: Case) -> dict[str, Any]:
    return {
        "arch": c.arch, "tp": c.tp, "rank": c.rank, "ep": c.ep,
        "params": [
            {"name": p.name, "dtype": p.dtype, "shape": p.shape, **({"excluded": p.excluded} if p.excluded else {})} for p in c.params
        ],
        "copies": [[x.source, x.ops, x.param, x.offset, x.shape, x.stride] for x in c.copies],
        "fills": [[x.param, x.offset, x.shape, x.stride, x.value] for x in c.fills],
        "alias": c.alias,
        "unread": c.unread,
    }  # fmt: skip


def decode(raw: bytes) -> Capture:
    """Reads a file, gzipped or not. For files of our own making: the receiver has the decoder that trusts nothing."""
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    body = json.loads(raw)
    if body.get("schema") != SCHEMA:
        raise ValueError(f"schema {body.get('schema')!r}, expected {SCHEMA!r}")
    sources = [Source(s["name"], s["dtype"], s["shape"]) for s in body["sources"]]
    return Capture(body["engine"], body["family"], body.get("model_type", ""), body["config"], sources, list(_cases(body["cases"])))


def _cases(raw: Iterable[dict[str, Any]]) -> Iterable[Case]:
    for c in raw:
        yield Case(
            c["arch"], c["tp"], c["rank"], c["ep"],
            [Param(p["name"], p["dtype"], p["shape"], p.get("excluded", "")) for p in c["params"]],
            [Copy(*x) for x in c["copies"]],
            [Fill(*x) for x in c["fills"]],
            c["alias"],
            c["unread"],
        )  # fmt: skip
