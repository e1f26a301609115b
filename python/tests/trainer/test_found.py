"""What is found in modules of one process, and how it is copied. Needs torch, no distributed job."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from drydock import (  # noqa: E402
    Parallel,
    Rule,
    SaturationError,
    Shard,
    ShardError,
    copying,
)
from drydock.found import find, from_sharded_state_dict  # noqa: E402


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 3)
        self.head = nn.Linear(3, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(2))
        self.register_buffer("cache", torch.ones(2), persistent=False)


def names(shards: list[Shard]) -> list[str]:
    return [s.name for s in shards]


def test_tied_weights_are_found_once() -> None:
    found = find(Tied())
    assert names(found.shards) == ["embed.weight", "scale"], "buffers belong to it where checkpoints have them"
    assert found.aliases == [["embed.weight", "head.weight"]]


def test_ties_that_transformers_declares() -> None:
    model = nn.Module()
    model.register_parameter("embed", nn.Parameter(torch.zeros(3)))
    model._tied_weights_keys = {"head": "embed"}  # type: ignore[assignment]
    model.config = type("C", (), {"tie_word_embeddings": True})()  # type: ignore[assignment]
    assert find(model).aliases == [["embed", "head"]]
    model.config.tie_word_embeddings = False  # type: ignore[union-attr]
    assert find(model).aliases == []


def test_wrappers_leave_no_trace_in_names() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = nn.Sequential(checkpoint_wrapper(nn.Linear(2, 2)), nn.Linear(2, 2))
    assert names(find(torch.compile(model)).shards) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_rules_cut_local_tensors() -> None:
    fused = torch.arange(24.0).view(8, 3)
    rule = Rule("fc1", ("gate", "up"), "gate_up")
    found = find({"fc1": fused, "norm": torch.ones(2)}, [rule], Parallel(tp_rank=1, tp_size=2))
    assert [(s.name, s.shape, s.box) for s in found.shards] == [
        ("gate", (8, 3), ((4, 8), (0, 3))), ("up", (8, 3), ((4, 8), (0, 3))), ("norm", (2,), ((0, 2),)),
    ]  # fmt: skip
    assert torch.equal(found.shards[1].data, fused[4:])
    assert found.shards[0].data.data_ptr() == fused.data_ptr(), "nothing is copied to find it"


@pytest.mark.parametrize(
    "odd", [torch.zeros(2, 2).to_sparse(), torch.zeros(3, device="meta"), torch.zeros(2).as_subclass(type("T", (torch.Tensor,), {}))]
)
def test_odd_tensors_are_refused(odd: Any) -> None:
    with pytest.raises(ShardError, match="atomic group"):
        find({"w": odd})


def test_nothing_is_refused() -> None:
    with pytest.raises(ShardError, match="no tensor"):
        find(nn.Module())
    with pytest.raises(ShardError, match="not a tensor"):
        find({"w": 3})
    with pytest.raises(ShardError, match="no sharded tensor"):
        from_sharded_state_dict({"a": 1})


def slot(tmp_path: Path, nbytes: int) -> copying.Slot:
    path = tmp_path / "slot"
    path.write_bytes(bytes(nbytes))
    return copying.Slot(str(path), nbytes)


def copies(named: list[copying.Named]) -> list[copying.Copy]:
    return [n.copy for n in named]


def place(*blocks: tuple[Any, int]) -> list[dict[str, Any]]:
    return [{"box": box, "offset": offset} for box, offset in blocks]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "float8_e5m2", "int64"])
def test_copies_are_what_torch_casts(tmp_path: Path, dtype: str) -> None:
    source = (torch.randn(6, 10) * 3).to(torch.int64 if dtype == "int64" else torch.float32)
    shard = Shard("w", "int64" if dtype == "int64" else "float32", (12, 10), ((6, 12), (0, 10)), source)
    s = slot(tmp_path, 8192)
    copying.perform(copies(copying.plan([shard], [dtype], [place(([[6, 12], [0, 10]], 4096))], s)))
    want = source.to(getattr(torch, dtype)).contiguous().view(torch.uint8).numpy().tobytes()
    assert s.memory[4096 : 4096 + len(want)] == want
    assert s.memory[:4096] == bytes(4096)
    assert (tmp_path / "slot").read_bytes() == s.memory[:], "the file has it"


def test_large_copies_are_shared_among_threads(tmp_path: Path) -> None:
    """Pieces of one tensor, many tensors, a strided one and one without dimensions; torch's own threads stay as they are."""
    threads = torch.get_num_threads()
    sources = [torch.randn(3000, 3000), torch.randn(7), torch.randn(900, 700).t(), torch.tensor(3.0), torch.zeros(0, 5)]
    shards = [Shard(f"{i}", "float32", tuple(t.shape), tuple((0, n) for n in t.shape), t) for i, t in enumerate(sources)]
    places, end = [], 0
    for t in sources:
        places.append(place(([[0, n] for n in t.shape], end)))
        end += (t.nbytes + 4095) // 4096 * 4096
    s = slot(tmp_path, end)
    copying.perform(copies(copying.plan(shards, ["bfloat16"] * len(shards), places, s)))
    for t, (block,) in zip(sources, places, strict=True):
        want = t.to(torch.bfloat16).contiguous().view(torch.uint8).numpy().tobytes() if t.dim() else None
        if want is not None:
            assert s.memory[block["offset"] : block["offset"] + len(want)] == want
    assert torch.get_num_threads() == threads


def test_blocks_repack(tmp_path: Path) -> None:
    """A served layout of two column blocks, of a strided source."""
    source = torch.arange(60.0).view(10, 6).t()  # 6 × 10, not contiguous
    shard = Shard("w", "float32", (6, 10), ((0, 6), (0, 10)), source)
    s = slot(tmp_path, 8192)
    copying.perform(copies(copying.plan([shard], ["float32"], [place(([[0, 6], [0, 4]], 0), ([[0, 6], [4, 10]], 4096))], s)))
    got = torch.frombuffer(s.memory, dtype=torch.float32)
    assert torch.equal(got[:24].view(6, 4), source[:, :4])
    assert torch.equal(got[1024 : 1024 + 36].view(6, 6), source[:, 4:])


def test_a_slot_is_what_was_promised(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(bytes(100))
    with pytest.raises(Exception, match="100 bytes"):
        copying.Slot(str(path), 200)
    shard = Shard("w", "float32", (4,), ((0, 4),), torch.zeros(4))
    with pytest.raises(Exception, match="not in a slot"):
        copying.plan([shard], ["float32"], [place(([[0, 4]], mmap.PAGESIZE))], slot(tmp_path, mmap.PAGESIZE))


@pytest.mark.parametrize("dtype, most", [("float8_e4m3fn", 448.0), ("float8_e5m2", 57344.0)])
def test_casts_that_clip_are_refused(dtype: str, most: float) -> None:
    def check(value: float, of: str = "float32") -> None:
        data = torch.tensor([0.0, value, float("nan")], dtype=getattr(torch, of))
        copying.refuse_saturation([Shard("w", of, (3,), ((0, 3),), data)], [dtype])

    for good in (most, -most, most * 1.03):  # what rounds to the largest is no clipping
        check(good)
    for bad in (most * 1.08, -most * 1.2, float("inf"), -float("inf")):
        with pytest.raises(SaturationError, match="w has a value"):
            check(bad)


def test_dtype_policies() -> None:
    w = Shard("a.weight", "float32", (1,), ((0, 1),), torch.zeros(1))
    i = Shard("a.index", "int32", (1,), ((0, 1),), torch.zeros(1, dtype=torch.int32))
    assert copying.served_dtype(None, w) == "float32"
    assert copying.served_dtype("bfloat16", w) == "bfloat16"
    assert copying.served_dtype("bfloat16", i) == "int32", "integers are never cast"
    assert copying.served_dtype({"*.weight": "float16"}, w) == "float16"
    assert copying.served_dtype({"b.*": "float16"}, w) == "float32"
    assert copying.served_dtype(lambda s: "torch.bfloat16", w) == "bfloat16"
    for wrong in ("int8", "float8_e8m0fnu", "bool"):
        with pytest.raises(ShardError, match="can't be published"):
            copying.served_dtype(wrong, w)
