"""Which writes of a parameter are left in the end: later ones over earlier ones, and what nobody writes.

A place is (offset, shape, stride) in elements of a contiguous parameter. It is a set of runs [lo, hi), and only these
matter here: two places are compared as sets of elements. Standard library alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

Run = tuple[int, int]

# A place of more runs than this is not taken apart; its parameter is excluded. The largest seen has some thousand.
MAX_RUNS = 1 << 20


class TooFine(ValueError):
    """A place has more than MAX_RUNS runs."""


@dataclass(frozen=True)
class Place:
    """Where a write goes."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def nelems(self) -> int:
        """How many elements it has."""
        n = 1
        for s in self.shape:
            n *= s
        return n

    def runs(self) -> list[Run]:
        """Its elements as runs, in ascending order, adjacent ones joined."""
        if self.nelems() == 0:
            return []
        # From the finest stride on, dimensions that continue the run make it longer; the others multiply runs.
        length = 1
        outer: list[tuple[int, int]] = []
        for n, s in sorted(zip(self.shape, self.stride, strict=False), key=lambda d: d[1]):
            if n == 1:
                continue
            if not outer and s == length:
                length *= n
            else:
                outer.append((n, s))
        starts = [self.offset]
        for n, s in outer:
            if len(starts) * n > MAX_RUNS:
                raise TooFine(f"a place of shape {list(self.shape)} and stride {list(self.stride)} has more than {MAX_RUNS} runs")
            starts = [at + k * s for k in range(n) for at in starts]
        return join((at, at + length) for at in sorted(starts))


def join(runs: Sequence[Run] | object) -> list[Run]:
    """Sorted runs with adjacent ones joined."""
    out: list[Run] = []
    for lo, hi in runs:  # type: ignore[union-attr]
        if out and out[-1][1] == lo:
            out[-1] = (out[-1][0], hi)
        else:
            out.append((lo, hi))
    return out


class Covered:
    """A set of elements that grows."""

    def __init__(self) -> None:
        self._runs: list[Run] = []  # sorted, disjoint, not adjacent

    def missing(self, runs: Sequence[Run]) -> list[Run]:
        """What of runs is not covered yet."""
        out: list[Run] = []
        for lo, hi in runs:
            i = max(bisect_left(self._runs, (lo, lo)) - 1, 0)
            while lo < hi and i < len(self._runs) and self._runs[i][0] < hi:
                a, b = self._runs[i]
                if b > lo:
                    if a > lo:
                        out.append((lo, a))
                    lo = b
                i += 1
            if lo < hi:
                out.append((lo, hi))
        return out

    def add(self, runs: Sequence[Run]) -> None:
        """Covers runs, of which none is covered yet."""
        merged: list[Run] = []
        for run in sorted([*self._runs, *runs]):
            if merged and merged[-1][1] >= run[0]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], run[1]))
            else:
                merged.append(run)
        self._runs = merged


@dataclass
class Write:
    """One write of a loader. what is the writer's own; fill says that all its elements get one value."""

    place: Place
    what: object
    fill: bool = False


def settle(writes: Sequence[Write], nelems: int) -> tuple[list[Write], str]:
    """The writes that are left, in their order, and why the parameter can't be made of them; empty: it can.

    Writes that later ones cover wholly are gone. A fill that is covered in part stays with its rest; a copy that is
    covered in part is not followed further.
    """
    covered, left, total = Covered(), [], 0
    try:
        for w in reversed(writes):
            runs = w.place.runs()
            rest = covered.missing(runs)
            if not rest:
                continue
            if rest != runs and not w.fill:
                return [], "loader writes a part of it twice"
            if rest == runs:
                left.append(w)
            else:
                left.extend(Write(Place(lo, (hi - lo,), (1,)), w.what, True) for lo, hi in reversed(rest))
            covered.add(rest)
            total += sum(hi - lo for lo, hi in rest)
    except TooFine as e:
        return [], str(e)
    if total < nelems:
        holes = covered.missing([(0, nelems)])
        return [], f"loader leaves {nelems - total} of {nelems} elements unwritten, the first at {holes[0][0]}"
    return left[::-1], ""
