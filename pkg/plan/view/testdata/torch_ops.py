"""Writes torch_ops.txt: what torch answers to each view operation, legal and illegal, one line a chain.

    python torch_ops.py > torch_ops.txt

A line is: shape, operations as captures write them, and the answer: offset, shape and strides of the view,
"raises", or "copies" where torch returns other storage or shows an element twice.
"""

import itertools
import json
import warnings

import torch

warnings.filterwarnings("ignore")

SHAPES = [[], [5], [4, 6], [2, 3, 4], [0, 3], [1, 4, 1]]
BEFORE = [[], [["T", []]], [["__getitem__", [{"ellipsis": True}, {"slice": [None, None, 2]}]]]]
DIMS = [0, 1, -1, -2, 3, -4]


def index(*what):
    names = {Ellipsis: {"ellipsis": True}, None: {"none": True}}
    out = []
    for w in what:
        if isinstance(w, slice):
            out.append({"slice": [w.start, w.stop, w.step]})
        elif isinstance(w, int):
            out.append({"int": w})
        elif isinstance(w, list):
            out.append({"list": w})
        else:
            out.append(names[w])
    return out


ARGS = {
    "__getitem__": [
        index(*w)
        for w in [
            (), (0,), (-1,), (5,), (-6,), (..., 0), (..., -1, None), (None, ..., None), (0, 0), (0, ..., -1), (..., ...),
            (slice(None),), (slice(1, 3),), (slice(-2, None),), (slice(3, 1),), (slice(None, None, 3),), (slice(9, 12),),
            (slice(-99, 99, 2),), (slice(None, None, 0),), (slice(None, None, -1),), (slice(0, 2**62),), (..., slice(1, None, 2)),
            (slice(1, None), 0), (None, slice(1, 2), None), (0, 0, 0, 0), ([0],), (..., [0, 0]),
        ]
    ],
    "narrow": [[d, s, n] for d, s, n in [(0, 0, 2), (-1, 1, 2), (0, -2, 1), (1, 0, 0), (0, 4, 0), (0, 5, 0), (0, 6, 0), (0, 3, 4), (0, -7, 1), (3, 0, 1), (0, 0, -1)]] + [[0], [0, 1], [[0], 1, 1]],
    "select": [[0, 0], [-1, -1], [1, 2], [0, 9], [0, -9], [4, 0], [0]],
    "chunk+": [[1], [2], [3, -1], [9], [0], [-1], [2, 5], []],
    "split+": [[1], [2, -1], [9], [0], [-1], [2, 5], [[1, 2, 1]], [[0, 4]], [[2, 2], -1], [[1, 1]], [[-1, 5]], []],
    "split_with_sizes+": [[[1, 3]], [[2, 4], -1], [[2]], [2]],
    "tensor_split+": [[1], [2], [3, -1], [9], [0], [-2], [[1, 3]], [[]], [[3, 1]], [[-1]], [[9], 1], [2, 5], [{"index": [1, 2]}]],
    "unbind+": [[], [0], [-1], [1], [4]],
    "transpose": [[0, 1], [0, -1], [-1, -1], [0, 3], [0]],
    "swapaxes": [[0, 1], [-2, 0]],
    "swapdims": [[0, 1], [-2, 0]],
    "t": [[]],
    "T": [[]],
    "mT": [[]],
    "permute": [[0], [1, 0], [[-1, 0]], [2, 0, 1], [[0, -1, 1]], [0, 0], [[0, 1, 2]], [[]], [3, 0]],
    "movedim": [[0, 1], [0, -1], [[0, 1], [1, 0]], [[0], [-1]], [[0, 0], [0, 1]], [[0], [0, 1]], [4, 0], [[], []]],
    "moveaxis": [[0, -1], [[1, 0], [0, 1]]],
    "view": [[-1], [[]], [24], [2, 12], [[2, -1]], [6, 4], [4, 6], [2, 2, 6], [1, -1, 1], [0], [3, 0], [-1, -1], [-2], [7], [2**40, 2**40], [[1, 1, 1]]],
    "reshape": [[-1], [[]], [2, -1], [6, 4], [0], [-1, 0], [7], [1, 5, 1]],
    "flatten": [[], [0], [1], [0, 1], [-2], [0, 0], [1, 0], [0, 4], [-1, -1]],
    "unflatten": [[0, [2, -1]], [0, [-1]], [-1, [2, 3]], [-1, [-1, 2]], [0, [5, 1]], [0, [3, 3]], [1, [1, -1, 1]], [4, [1]], [0, []], [0, [0, 5]]],
    "squeeze": [[], [0], [-1], [[0, 2]], [1], [5], [[0, 0]]],
    "unsqueeze": [[0], [-1], [1], [4], [-5], []],
    "ravel": [[]],
    "contiguous": [[]],
    "detach": [[]],
    "expand": [[-1], [5], [1, 5], [4, 6], [-1, -1], [[1, 4, 6]], [2, 5], [[]], [0], [-1, 5], [1, 4, 1], [3, 4, 1]],
    "diagonal": [[], [1], [-1], [9], [0, 0, -1], [0, 1, 0], [0, 0, 0], [-2, -1, -2], [0, 0, 5]],
    "clone": [[]],
    "flip": [[[0]]],
    "repeat": [[2]],
}


def value(a):
    if not isinstance(a, dict):
        return a
    kind, v = next(iter(a.items()))
    return {"int": v, "slice": slice(*v) if kind == "slice" else 0, "ellipsis": ..., "none": None, "list": v, "index": torch.tensor(v) if kind == "index" else 0}[kind]


def apply(t, op):
    name, args = op[0], [value(a) for a in op[1]]
    if name == "__getitem__":
        return t[args[0]] if isinstance(t, (tuple, list)) else t[tuple(args)]
    return getattr(t, name) if name in ("T", "mT") else getattr(t, name)(*args)


def answer(shape, ops):
    n = 1
    for s in shape:
        n *= s
    base = t = torch.arange(n).view(shape)
    gathers = any(isinstance(a, dict) and "list" in a for o in ops for a in o[1])
    try:
        for o in ops:
            t = apply(t, o)
    except Exception:
        return "raises"
    copied = ops[-1][0] in ("clone", "flip", "repeat") or gathers
    if t.numel() and (t.untyped_storage().data_ptr() != base.untyped_storage().data_ptr() or t.unique().numel() < t.numel()):
        copied = True
    return "copies" if copied else f"{t.storage_offset()} {list(t.shape)} {list(t.stride())}"


for name, lists in ARGS.items():
    print(f"# {name.rstrip('+')}")
    seen = {}
    for shape, before, args in itertools.product(SHAPES, BEFORE, lists):
        if before and answer(shape, before) == "raises":
            continue
        ops = before + [[name.rstrip("+"), args]]
        picks = [0, -1, 2] if name.endswith("+") else [None]
        for k in picks:
            chain = ops if k is None else ops + [["__getitem__", [{"int": k}]]]
            said = answer(shape, chain)
            key = (tuple(shape), said) if said in ("raises", "copies") else (tuple(shape), bool(before), said)
            if seen.setdefault(key, 0) < (4 if not before else 1):  # the same refusal a few times is enough
                seen[key] += 1
                print(json.dumps(shape), json.dumps(chain), said, sep="\t")
