"""Megatron-style parameters: what a rank's local tensors are of the logical ones, as rules that are data.

A rule matches local names and says how the tensor was cut. Applying it gives boxes of logical tensors under the names that
checkpoints and engines use: a fused matrix becomes boxes of its parts, a local expert or layer gets its global number.
Nothing here touches values: a piece of a rule is a slice of the local tensor and a box of the logical one.

The pieces of one local tensor are disjoint, and together they are the whole of it, padding apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .shards import Box

Cut = Literal["replicated", "column", "row", "gate_up", "qkv"]


@dataclass(frozen=True)
class Parallel:
    """Where this rank is in the job. Layers and experts are numbered locally on each stage and expert rank."""

    tp_rank: int = 0
    tp_size: int = 1
    ep_rank: int = 0
    experts_per_rank: int = 0
    layer_offset: int = 0  #: number of the stage's first layer


@dataclass(frozen=True)
class Rule:
    """How the local tensors whose names match are cut.

    `match` is a regular expression for the whole name; its groups `layer` and `expert` are local numbers. `to` are the
    logical names, with `{layer}`, `{expert}` and other named groups filled in: one, or two for gate_up (gate, up), three for qkv (q, k, v).
    """

    match: str
    to: tuple[str, ...]
    cut: Cut = "replicated"
    tensor_parallel: bool = True  #: False: cut over nothing, such as experts that are whole on their rank
    vocabulary: int | None = None  #: rows that count, of a vocabulary that was padded for cutting (column)
    heads: int = 0  #: qkv: query heads of the whole layer
    groups: int = 0  #: qkv: key and value heads of the whole layer
    head_dim: int = 0  #: qkv

    def __post_init__(self) -> None:
        want = {"gate_up": 2, "qkv": 3}.get(self.cut, 1)
        if len(self.to) != want:
            raise ValueError(f"rule {self.match!r}: {len(self.to)} names for cut {self.cut}, {want} are needed")
        if self.cut == "qkv" and not (self.groups > 0 and self.head_dim > 0 and self.heads > 0 and self.heads % self.groups == 0):
            raise ValueError(f"rule {self.match!r}: {self.heads} heads in {self.groups} groups of width {self.head_dim}")
        re.compile(self.match)


@dataclass(frozen=True)
class Piece:
    """A part of a local tensor, and the box of a logical tensor that it is."""

    name: str
    shape: tuple[int, ...]  #: of the logical tensor
    box: Box
    local: Box  #: of the local tensor


def apply(rules: Sequence[Rule], at: Parallel, name: str, shape: Sequence[int]) -> list[Piece] | None:
    """The pieces of a local tensor by the first rule that matches; None where none does."""
    for rule in rules:
        m = re.fullmatch(rule.match, name)
        if m:
            return list(_pieces(rule, at, _names(rule, at, m), tuple(shape)))
    return None


def _names(rule: Rule, at: Parallel, m: re.Match[str]) -> list[str]:
    """The logical names, with local numbers made global."""
    groups: Mapping[str, str] = m.groupdict()
    values: dict[str, object] = dict(groups)
    if "layer" in groups:
        values["layer"] = int(groups["layer"]) + at.layer_offset
    if "expert" in groups:
        values["expert"] = int(groups["expert"]) + at.ep_rank * at.experts_per_rank
    return [to.format(**values) for to in rule.to]


def _pieces(rule: Rule, at: Parallel, names: Sequence[str], shape: tuple[int, ...]) -> Iterator[Piece]:
    rank, size = (at.tp_rank, at.tp_size) if rule.tensor_parallel else (0, 1)
    whole: Box = tuple((0, n) for n in shape)
    if rule.cut != "replicated" and len(shape) <= (1 if rule.cut == "row" else 0):
        raise ValueError(f"{names[0]}: a tensor of shape {shape} can't be cut as {rule.cut}")
    if rule.cut == "replicated":
        yield Piece(names[0], shape, whole, whole)
    elif rule.cut == "column":
        yield from _column(rule, rank, size, names[0], shape)
    elif rule.cut == "row":
        lo, n = rank * shape[1], shape[1]
        yield Piece(names[0], (shape[0], n * size, *shape[2:]), (whole[0], (lo, lo + n), *whole[2:]), whole)
    elif rule.cut == "gate_up":
        if shape[0] % 2:
            raise ValueError(f"{names[0]}: gate and up in {shape[0]} rows")
        n = shape[0] // 2
        for k, name in enumerate(names):
            box = ((rank * n, (rank + 1) * n), *whole[1:])
            yield Piece(name, (n * size, *shape[1:]), box, ((k * n, (k + 1) * n), *whole[1:]))
    else:
        yield from _qkv(rule, rank, size, names, shape)


def _column(rule: Rule, rank: int, size: int, name: str, shape: tuple[int, ...]) -> Iterator[Piece]:
    """Rows, of which those beyond the vocabulary are padding. A rank may hold nothing but padding: an empty box."""
    n = shape[0]
    total = n * size if rule.vocabulary is None else rule.vocabulary
    lo, hi = min(rank * n, total), min((rank + 1) * n, total)
    rest: Box = tuple((0, x) for x in shape[1:])
    yield Piece(name, (total, *shape[1:]), ((lo, hi), *rest), ((0, hi - lo), *rest))


def _qkv(rule: Rule, rank: int, size: int, names: Sequence[str], shape: tuple[int, ...]) -> Iterator[Piece]:
    """Rows per group: the query heads of the group, then its key head, then its value head. Ranks hold equal numbers of raw
    rows, which may begin and end within a group where there are more ranks than groups."""
    d, per = rule.head_dim, rule.heads // rule.groups
    block = (per + 2) * d  # rows of a group
    if shape[0] * size != block * rule.groups:
        raise ValueError(f"{names[0]}: {shape[0]} rows on each of {size} ranks are not {rule.groups} groups of {block}")
    lo, hi = rank * shape[0], (rank + 1) * shape[0]
    rest: Box = tuple((0, x) for x in shape[1:])
    for g in range(lo // block, -(-hi // block)):
        parts = ((0, per * d, rule.heads * d), (per * d, d, rule.groups * d), ((per + 1) * d, d, rule.groups * d))
        for name, (start, rows, total) in zip(names, parts, strict=True):
            first = g * block + start  # raw row of the part
            a, b = max(lo, first), min(hi, first + rows)
            if a < b:
                base = g * rows - first
                yield Piece(name, (total, *shape[1:]), ((a + base, b + base), *rest), ((a - lo, b - lo), *rest))


def megatron_gpt(
    heads: int, groups: int, head_dim: int, vocabulary: int, name: Callable[[str], str] = lambda hf: hf
) -> tuple[Rule, ...]:
    """The rules of Megatron-core's `GPTModel`, to the names of Hugging Face's llama and Mixtral-like families."""
    layer = r"decoder\.layers\.(?P<layer>\d+)\."
    hf = "model.layers.{layer}."

    def rule(match: str, *to: str, cut: Cut = "replicated", **more: object) -> Rule:
        return Rule(match, tuple(name(x) for x in to), cut, **more)  # type: ignore[arg-type]

    attention = {"heads": heads, "groups": groups, "head_dim": head_dim}
    qkv = tuple(hf + f"self_attn.{x}_proj." + "{kind}" for x in "qkv")
    expert = hf + "mlp.experts.{expert}."
    local = layer + r"mlp\.experts\.local_experts\.(?P<expert>\d+)\."
    return (
        rule(r"embedding\.word_embeddings\.weight", "model.embed_tokens.weight", cut="column", vocabulary=vocabulary),
        rule(r"output_layer\.weight", "lm_head.weight", cut="column", vocabulary=vocabulary),
        rule(layer + r"self_attention\.linear_qkv\.(?P<kind>weight|bias)", *qkv, cut="qkv", **attention),
        rule(layer + r"self_attention\.linear_proj\.weight", hf + "self_attn.o_proj.weight", cut="row"),
        rule(layer + r"self_attention\.linear_qkv\.layer_norm_weight", hf + "input_layernorm.weight"),
        rule(layer + r"input_layernorm\.weight", hf + "input_layernorm.weight"),
        rule(layer + r"mlp\.linear_fc1\.layer_norm_weight", hf + "post_attention_layernorm.weight"),
        rule(layer + r"pre_mlp_layernorm\.weight", hf + "post_attention_layernorm.weight"),
        rule(layer + r"self_attention\.(?P<qk>[qk])_layernorm\.weight", hf + "self_attn.{qk}_norm.weight"),
        rule(layer + r"mlp\.linear_fc1\.weight", hf + "mlp.gate_proj.weight", hf + "mlp.up_proj.weight", cut="gate_up"),
        rule(layer + r"mlp\.linear_fc2\.weight", hf + "mlp.down_proj.weight", cut="row"),
        rule(layer + r"mlp\.router\.weight", hf + "mlp.gate.weight"),
        rule(local + r"linear_fc1\.weight", expert + "gate_proj.weight", expert + "up_proj.weight", cut="gate_up", tensor_parallel=False),
        rule(local + r"linear_fc2\.weight", expert + "down_proj.weight", cut="row", tensor_parallel=False),
        rule(r"decoder\.final_layernorm\.weight", "model.norm.weight"),
    )
