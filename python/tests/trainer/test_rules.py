"""Ranges, boxes and Megatron's ways of cutting, against the dumbest way to do the same. No torch, no process."""

from __future__ import annotations

import itertools
import random

import pytest

from drydock import Parallel, Rule, Shard
from drydock.rules import apply, megatron_gpt
from drydock.shards import boxes_of_range


def elements(shape: tuple[int, ...], box: tuple[tuple[int, int], ...]) -> list[int]:
    """The flat indices of a box, in row-major order."""
    out = []
    for at in itertools.product(*(range(lo, hi) for lo, hi in box)):
        flat = 0
        for n, x in zip(shape, at, strict=True):
            flat = flat * n + x
        out.append(flat)
    return out


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4), (2, 1, 3, 2), (1, 1), (4, 0)])
def test_boxes_of_every_range(shape: tuple[int, ...]) -> None:
    total = 1
    for n in shape:
        total *= n
    for lo in range(total + 1):
        for hi in range(lo, total + 1):
            boxes = list(boxes_of_range(shape, lo, hi))
            got = [i for b in boxes for i in elements(shape, b)]
            assert got == list(range(lo, hi)), (shape, lo, hi, boxes)
            assert len(boxes) <= max(1, 2 * (len(shape) - 1) + 1)
    with pytest.raises(ValueError):
        list(boxes_of_range(shape, 0, total + 1))


def covered(rules: list[Rule], ranks: list[Parallel], name: str, local: tuple[int, ...]) -> dict[str, list[int]]:
    """The elements of each logical tensor that all ranks together hold."""
    out: dict[str, list[int]] = {}
    for at in ranks:
        pieces = apply(rules, at, name, local)
        assert pieces is not None
        used: list[int] = []
        for p in pieces:
            used += elements(local, p.local)
            out.setdefault(p.name, []).extend(elements(p.shape, p.box))
        assert len(used) == len(set(used)), "pieces overlap in the local tensor"
    return out


def test_each_way_of_cutting_covers_once() -> None:
    random.seed(1)
    for _ in range(60):
        tp, groups, per, d, h = (random.choice(x) for x in ([1, 2, 4], [1, 2, 4], [1, 2, 3], [2, 4], [1, 3]))
        rows = groups * (per + 2) * d
        if rows % tp:
            continue
        ranks = [Parallel(tp_rank=r, tp_size=tp) for r in range(tp)]
        got = covered([Rule("x", ("q", "k", "v"), "qkv", heads=groups * per, groups=groups, head_dim=d)], ranks, "x", (rows // tp, h))
        assert sorted(got["q"]) == list(range(groups * per * d * h))
        assert sorted(got["k"]) == sorted(got["v"]) == list(range(groups * d * h))
        got = covered([Rule("x", ("g", "u"), "gate_up")], ranks, "x", (2 * per, h))
        assert sorted(got["g"]) == sorted(got["u"]) == list(range(per * tp * h))
        for cut in ("row", "column"):
            got = covered([Rule("x", ("y",), cut)], ranks, "x", (per, h))  # type: ignore[arg-type]
            assert sorted(got["y"]) == list(range(per * h * tp))
        vocabulary = random.randint(1, per * tp)
        got = covered([Rule("x", ("y",), "column", vocabulary=vocabulary)], ranks, "x", (per, h))
        assert sorted(got["y"]) == list(range(vocabulary * h))


def test_fused_qkv_takes_the_right_rows() -> None:
    """Two groups of two query heads of width one, on two ranks: q0 q1 k0 v0 and q2 q3 k1 v1."""
    rule = Rule("x", ("q", "k", "v"), "qkv", heads=4, groups=2, head_dim=1)
    pieces = apply([rule], Parallel(tp_rank=1, tp_size=2), "x", (4,))
    assert pieces is not None
    assert [(p.name, p.shape, p.box, p.local) for p in pieces] == [
        ("q", (4,), ((2, 4),), ((0, 2),)), ("k", (2,), ((1, 2),), ((2, 3),)), ("v", (2,), ((1, 2),), ((3, 4),)),
    ]  # fmt: skip


def test_more_ranks_than_groups() -> None:
    """Half a group a rank: three query heads on one, the fourth with key and value on the other."""
    rule = Rule("x", ("q", "k", "v"), "qkv", heads=8, groups=2, head_dim=4)
    first = apply([rule], Parallel(tp_rank=0, tp_size=4), "x", (12, 5)) or []
    second = apply([rule], Parallel(tp_rank=1, tp_size=4), "x", (12, 5)) or []
    assert [(p.name, p.box[0]) for p in first] == [("q", (0, 12))]
    assert [(p.name, p.box[0]) for p in second] == [("q", (12, 16)), ("k", (0, 4)), ("v", (0, 4))]


def test_numbers_become_global() -> None:
    rules = megatron_gpt(heads=4, groups=2, head_dim=4, vocabulary=22)
    at = Parallel(tp_rank=1, tp_size=2, ep_rank=1, experts_per_rank=4, layer_offset=3)
    pieces = apply(rules, at, "decoder.layers.2.mlp.experts.local_experts.1.linear_fc1.weight", (10, 12)) or []
    assert [p.name for p in pieces] == [f"model.layers.5.mlp.experts.5.{x}_proj.weight" for x in ("gate", "up")]
    assert [p.shape for p in pieces] == [(5, 12)] * 2, "experts are whole on their rank"
    vocabulary = apply(rules, at, "embedding.word_embeddings.weight", (16, 12)) or []
    assert [(p.shape, p.box, p.local) for p in vocabulary] == [((22, 12), ((16, 22), (0, 12)), ((0, 6), (0, 12)))]
    assert apply(rules, at, "something.else", (3,)) is None


def test_wrong_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="2 are needed"):
        Rule("x", ("a",), "gate_up")
    with pytest.raises(ValueError, match="heads"):
        Rule("x", ("q", "k", "v"), "qkv", heads=3, groups=2, head_dim=1)
    with pytest.raises(ValueError, match="rows"):
        apply([Rule("x", ("q", "k", "v"), "qkv", heads=2, groups=1, head_dim=1)], Parallel(), "x", (5,))
    with pytest.raises(ValueError, match="can't be cut"):
        apply([Rule("x", ("y",), "row")], Parallel(), "x", (5,))
    with pytest.raises(ValueError, match="dimensions"):
        Shard("w", "float32", (1, 2), ((0, 1),), b"")
