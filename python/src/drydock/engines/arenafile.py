"""Reads the header of an arena file: a safetensors file that a Drydock receiver laid out and labelled.

The safetensors package opens such files too. This module reads no tensor bytes and needs no torch; it is for the checks
before an update, where a damaged file must be told apart from a wrong one, and named.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The limit of the safetensors format for the JSON text, in bytes.
MAX_HEADER = 100_000_000

# Metadata keys that a receiver writes (pkg/refit/arena).
MODEL, RUN, VERSION = "drydock.model", "drydock.run", "drydock.version"
RANK, LAYOUT, ALIAS = "drydock.rank", "drydock.layout", "drydock.alias"

# Bits of one element; a type that is missing here is refused.
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F8_E8M0": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip

# (dtype as safetensors names it, shape in elements)
TensorType = tuple[str, tuple[int, ...]]


class ArenaError(ValueError):
    """The file is not what was announced. Nothing has been touched."""


@dataclass(frozen=True)
class ArenaFile:
    """The header of one file."""

    path: str
    nbytes: int
    tensors: dict[str, TensorType]
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """The tensor-parallel rank that the file was made for."""
        return self._number(RANK)

    @property
    def key(self) -> tuple[int, int]:
        """Run and version, in the order in which versions are compared."""
        return self._number(RUN), self._number(VERSION)

    @property
    def layout(self) -> str:
        """Digest of names, types and shapes, as the receiver computed it."""
        return self.metadata.get(LAYOUT, "")

    @property
    def alias(self) -> dict[str, str]:
        """Other name to the name that has the bytes."""
        try:
            alias = json.loads(self.metadata.get(ALIAS, "{}"))
        except ValueError as e:
            raise ArenaError(f"{self.path}: metadata {ALIAS} is no JSON: {e}") from e
        if not isinstance(alias, dict):
            raise ArenaError(f"{self.path}: metadata {ALIAS} is a {type(alias).__name__}, expected an object")
        return alias

    def _number(self, key: str) -> int:
        text = self.metadata.get(key, "")
        if not text.isdecimal():
            raise ArenaError(f"{self.path}: metadata {key} is {text!r}, expected a number: no receiver of Drydock made this file")
        return int(text)


def resolve(path: str, root: str) -> str:
    """The real path of a file below root. Links are followed first, so that none leads out of it."""
    real, base = os.path.realpath(path), os.path.realpath(root)
    if real == base or os.path.commonpath([real, base]) != base:
        raise ArenaError(f"{path} is outside {root}, the folder whose files may be opened")
    return real


def read(path: str) -> ArenaFile:
    """Reads and checks a header: its tensors must cover the rest of the file, without hole or overlap."""
    try:
        with open(path, "rb") as f:
            nbytes = os.fstat(f.fileno()).st_size
            head = f.read(8)
            if len(head) < 8:
                raise ArenaError(f"{path}: {nbytes} bytes, too short for a header")
            (length,) = struct.unpack("<Q", head)
            if not 2 <= length <= min(MAX_HEADER, nbytes - 8):
                raise ArenaError(f"{path}: a header of {length} bytes in a file of {nbytes}: not sealed, or truncated")
            text = f.read(length)
    except OSError as e:
        raise ArenaError(f"{path}: {e.strerror or e}") from e
    try:
        header = json.loads(text)
    except ValueError as e:
        raise ArenaError(f"{path}: the header is no JSON: {e}") from e
    if not isinstance(header, dict):
        raise ArenaError(f"{path}: the header is a {type(header).__name__}, expected an object")
    metadata = header.pop("__metadata__", None) or {}
    tensors = _tensors(path, header, nbytes - 8 - length)
    return ArenaFile(path, nbytes, tensors, {str(k): str(v) for k, v in metadata.items()})


def _tensors(path: str, header: Mapping[str, Any], nbytes: int) -> dict[str, TensorType]:
    """Checks the entries against the nbytes that follow the header."""
    tensors: dict[str, TensorType] = {}
    ranges = []
    for name, entry in header.items():
        try:
            dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            want = BITS[dtype]
            for n in shape:
                if not isinstance(n, int) or n < 0:
                    raise ValueError(f"size {n!r}")
                want *= n
            if end - start != (want + 7) // 8 or want % 8 != 0:
                raise ValueError(f"{end - start} bytes for {dtype}{list(shape)}")
        except (KeyError, TypeError, ValueError) as e:
            raise ArenaError(f"{path}: tensor {name}: {type(e).__name__}: {e}") from e
        tensors[name] = dtype, shape
        ranges.append((start, end, name))
    at = 0
    for start, end, name in sorted(ranges):
        if start != at:
            raise ArenaError(f"{path}: tensor {name} begins at byte {start}, expected {at}")
        at = end
    if at != nbytes:
        raise ArenaError(f"{path}: tensors end at byte {at}, the file has {nbytes} after its header: truncated?")
    return tensors


def differences(have: Mapping[str, TensorType], want: Mapping[str, TensorType], most: int = 4) -> str:
    """Names what differs, at most so many; empty where nothing does."""
    bad = sorted(name for name in have.keys() | want.keys() if have.get(name) != want.get(name))
    text = "; ".join(f"{name}: the file has {_show(have.get(name))}, the engine needs {_show(want.get(name))}" for name in bad[:most])
    return text + (f"; and {len(bad) - most} more" if len(bad) > most else "")


def _show(t: TensorType | None) -> str:
    return "none" if t is None else f"{t[0]}{list(t[1])}"
