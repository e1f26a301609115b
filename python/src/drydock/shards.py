"""What a rank publishes: shards, each a box of one logical tensor with the memory that holds it.

This module needs the standard library alone. `drydock.found` finds the shards of torch modules, `drydock.rules` those of
Megatron-style parameters; a trainer that has neither builds `Shard`s itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: Bytes of an element, by the names that the sidecar takes (torch's; safetensors' are taken too).
SIZES: dict[str, int] = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip

Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Shard:
    """One box of a tensor: `data` holds the elements [lo, hi) of each dimension of `box`.

    `data` is a torch tensor of the box's shape, with any strides, or an object with the buffer protocol that holds them
    packed, in row-major order.
    """

    name: str
    dtype: str  #: torch's name
    shape: tuple[int, ...]  #: of the whole logical tensor
    box: Box
    data: Any

    def __post_init__(self) -> None:
        if len(self.box) != len(self.shape):
            raise ValueError(f"{self.name}: a box of {len(self.box)} dimensions in a shape of {len(self.shape)}")
        for (lo, hi), n in zip(self.box, self.shape, strict=True):
            if not 0 <= lo <= hi <= n:
                raise ValueError(f"{self.name}: box {self.box} is not in shape {self.shape}")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The box's shape."""
        return tuple(hi - lo for lo, hi in self.box)

    @property
    def nelems(self) -> int:
        return math.prod(self.sizes)


def whole(name: str, dtype: str, shape: Sequence[int], data: Any) -> Shard:
    """A tensor that this rank holds whole."""
    return Shard(name, dtype, tuple(shape), tuple((0, n) for n in shape), data)


def boxes_of_range(shape: Sequence[int], lo: int, hi: int) -> Iterator[Box]:
    """The boxes that a range [lo, hi) of a flattened tensor consists of, in flat order.

    At most 2(d-1)+1 of them for d dimensions: a partial first row, whole rows, a partial last row, and each partial row the
    same again one dimension down.
    """
    if not 0 <= lo <= hi <= math.prod(shape):
        raise ValueError(f"range [{lo}, {hi}) of a tensor of shape {tuple(shape)}")
    if lo == hi:
        return
    if not shape:
        yield ()
        return
    row = math.prod(shape[1:])
    first, last = -(-lo // row), hi // row  # whole rows
    if first > last:  # within one row
        for rest in boxes_of_range(shape[1:], lo % row, hi - lo // row * row):
            yield ((lo // row, lo // row + 1), *rest)
        return
    if lo % row:
        for rest in boxes_of_range(shape[1:], lo % row, row):
            yield ((first - 1, first), *rest)
    if first < last:
        yield ((first, last), *((0, n) for n in shape[1:]))
    if hi % row:
        for rest in boxes_of_range(shape[1:], 0, hi % row):
            yield ((last, last + 1), *rest)
