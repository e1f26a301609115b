"""Which writes are left: compared with a mask of every element."""

import random

import pytest

from drydock.capture import writes
from drydock.capture.writes import Place, Write, settle


def elements(place):
    """Every element of a place, the plain way."""
    found = [place.offset]
    for n, s in zip(place.shape, place.stride, strict=False):
        found = [at + k * s for at in found for k in range(n)]
    return found


def spread(runs):
    return [i for lo, hi in runs for i in range(lo, hi)]


@pytest.mark.parametrize(
    "place",
    [
        Place(0, (), ()),
        Place(3, (4,), (1,)),
        Place(3, (4,), (5,)),
        Place(0, (3, 4), (4, 1)),
        Place(2, (3, 4), (8, 1)),
        Place(2, (4, 3), (1, 8)),  # transposed
        Place(0, (2, 3, 4), (24, 8, 1)),
        Place(5, (1, 3, 1), (99, 7, 1)),
        Place(0, (0, 4), (4, 1)),
    ],
)
def test_runs(place):
    assert spread(place.runs()) == sorted(elements(place))
    assert all(a[1] < b[0] for a, b in zip(place.runs(), place.runs()[1:], strict=False)), "adjacent runs are not joined"


def test_too_fine():
    with pytest.raises(writes.TooFine):
        Place(0, (1 << 21,), (2,)).runs()
    assert "runs" in settle([Write(Place(0, (1 << 21,), (2,)), "a")], 1 << 22)[1]


def test_the_last_write_stays():
    whole, half = Place(0, (8,), (1,)), Place(4, (4,), (1,))
    left, why = settle([Write(whole, "old"), Write(whole, "new")], 8)
    assert ([w.what for w in left], why) == (["new"], "")
    left, why = settle([Write(whole, 0.0, True), Write(half, "copy")], 8)
    assert ([(w.what, w.place.offset, w.place.shape) for w in left], why) == ([(0.0, 0, (4,)), ("copy", 4, (4,))], "")


def test_a_copy_that_is_covered_in_part():
    assert settle([Write(Place(0, (8,), (1,)), "a"), Write(Place(6, (2,), (1,)), "b")], 8)[1] == "loader writes a part of it twice"


def test_holes():
    assert settle([], 4)[1] == "loader leaves 4 of 4 elements unwritten, the first at 0"
    assert settle([Write(Place(0, (2,), (1,)), "a")], 3)[1] == "loader leaves 1 of 3 elements unwritten, the first at 2"
    assert settle([], 0) == ([], "")


def test_random_fills_against_a_mask():
    rng = random.Random(1)
    for _ in range(300):
        mask, list_ = [None] * 24, [Write(Place(0, (24,), (1,)), -1.0, True)]
        for k in range(rng.randrange(6)):
            a, b = rng.randrange(1, 4), rng.randrange(1, 4)
            step = rng.choice([1, 2])
            place = Place(rng.randrange(24 - (a - 1) * 6 - (b - 1) * step), (a, b), (6, step))
            list_.append(Write(place, float(k), True))
        for w in list_:
            for i in elements(w.place):
                mask[i] = w.what
        left, why = settle(list_, 24)
        assert why == ""
        got = [None] * 24
        for w in left:
            for i in elements(w.place):
                assert got[i] is None, "written twice"
                got[i] = w.what
        assert got == mask
