"""The recorder on small loaders of its own: each way to copy, and each way to compute."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from drydock.capture import recorder, replay, schema  # noqa: E402

NAMES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.float16: "F16"}


def run(load, params, sources, device="meta"):
    """Records load(params, source tensors) and returns the case."""
    made = {n: torch.empty(s, dtype=d, device=device) for n, (s, d) in params.items()}
    tensors = [(n, torch.empty(s, dtype=d, device=device)) for n, (s, d) in sources.items()]

    def loader(weights):
        load(made, dict(weights))

    found, now = recorder.record(tensors, dict(made), loader, lambda: made.items())
    return recorder.case_of(found, now, len(tensors), NAMES), [schema.Source(n, NAMES[d], list(s)) for n, (s, d) in sources.items()]


def check(load, params, sources):
    """Does with numbers what the capture says, and compares with what the loader itself does."""
    case, listed = run(load, params, sources)
    assert [p.excluded for p in case.params] == [""] * len(params)
    real = {n: torch.arange(torch.Size(s).numel()).reshape(s).to(d) + 100 * i for i, (n, (s, d)) in enumerate(sources.items())}
    want = {n: torch.full(s, -1.0, dtype=d) for n, (s, d) in params.items()}
    load(want, {n: t.clone() for n, t in real.items()})
    ordered = [real[s.name] for s in listed]
    made = replay.params(case, lambda p: torch.full(p.shape, -1.0, dtype=want[p.name].dtype), lambda i: ordered[i])
    got = {p.name: t for p, t in made}
    for name, t in want.items():
        assert torch.equal(got[name], t), name
    return case


F = torch.float32
W = {"w": ((6, 8), F)}


@pytest.mark.parametrize(
    "shape, copy",
    [
        ((6, 8), lambda w: w),
        ((3, 8), lambda w: w.narrow(0, 3, 3)),
        ((6, 2), lambda w: w[:, 2:4]),
        ((6, 4), lambda w: w[:, ::2]),
        ((8,), lambda w: w[-1]),
        ((6,), lambda w: w[..., 3]),
        ((8, 6), lambda w: w.t()),
        ((8, 6), lambda w: w.transpose(0, 1).contiguous()),
        ((2, 8), lambda w: w.chunk(3)[1]),
        ((6, 5), lambda w: w.split([3, 5], dim=1)[1]),
        ((8,), lambda w: w.unbind()[4]),
        ((2, 3, 8), lambda w: w.view(2, 3, 8)),
        ((8, 2, 3), lambda w: w.view(2, 3, 8).permute(2, 0, 1)),
        ((48,), lambda w: w.t().reshape(-1)),
        ((6, 1, 8), lambda w: w.unsqueeze(1)),
        ((6, 8), lambda w: w.unsqueeze(0).squeeze(0)),
        ((6, 8), lambda w: w.to(torch.float64).to(F)),
        ((6, 8), lambda w: w.data.detach().clone()),
        ((2, 8), lambda w: w.index_select(0, torch.tensor([5, 0]))),
        ((3, 8), lambda w: w[torch.tensor([5, 0, -2])]),
        ((6, 2), lambda w: w[:, torch.tensor([7, 1])]),
        ((2, 8), lambda w: w[torch.tensor([False, True, False, False, True, False])]),
        ((3, 4), lambda w: w.narrow(0, 0, 3).t().narrow(0, 4, 4).t().contiguous()),
        ((4, 12), lambda w: w.reshape(4, 12)),
    ],
)
def test_copies(shape, copy):
    check(lambda p, s: p["p"].data.copy_(copy(s["w"])), {"p": (shape, F)}, W)


def test_places_fills_and_order():
    def load(p, s):
        p["p"].zero_()
        p["p"][:6].copy_(s["w"])
        p["p"][8:, :4] = s["w"][:2, 4:]
        p["q"].data.fill_(3.0)
        p["q"].narrow(0, 1, 2).copy_(s["w"][0, :2])

    case = check(load, {"p": ((10, 8), F), "q": ((4,), F)}, W)
    assert len(case.copies) == 3


def test_one_element_read_as_a_number():
    def load(p, s):
        p["p"].data.fill_(s["scale"].item())

    check(load, {"p": ((1,), F)}, {"scale": ((1,), F)})


def test_casts():
    check(lambda p, s: p["p"].copy_(s["w"]), {"p": ((6, 8), F)}, {"w": ((6, 8), torch.bfloat16)})
    case, _ = run(lambda p, s: p["p"].copy_(s["w"].to(torch.float16)), {"p": ((6, 8), F)}, W)
    assert "float16" in case.params[0].excluded


def test_later_load_replaces_an_earlier_one():
    case = check(lambda p, s: (p["p"].copy_(s["a"]), p["p"].copy_(s["b"])), {"p": ((3,), F)}, {"a": ((3,), F), "b": ((3,), F)})
    assert [c.source for c in case.copies] == [1]


@pytest.mark.parametrize(
    "compute, says",
    [
        (lambda p, s: p.copy_(-torch.exp(s)), "exp,neg"),
        (lambda p, s: p.copy_(torch.cat([s[3:], s[:3]])), "cat"),
        (lambda p, s: (p.copy_(s), p.copy_(-p)), "neg"),
        (lambda p, s: (p.copy_(s), p.mul_(2)), "mul_"),
        (lambda p, s: (s.narrow(0, 0, 2).zero_(), p.copy_(s)), "changed in place: zero_"),
        (lambda p, s: (s.data.mul_(2), p.copy_(s)), "changed in place: mul_"),
        (lambda p, s: p.copy_(torch.zeros_like(s).copy_(s)), "copy_"),
        (lambda p, s: p.copy_(torch.nn.functional.pad(s[:4], (0, 0, 0, 2))), "pad"),
        (lambda p, s: p.copy_(s[:1]), "expand"),
        (lambda p, s: p.copy_(s.as_strided((6, 8), (1, 6))), "not recorded"),
        (lambda p, s: p[:3].copy_(s[:3]), "unwritten"),
        (lambda p, s: p.copy_(torch.ones(6, 8, device=p.device)), "not of the checkpoint"),
    ],
)
def test_what_is_computed_is_excluded(compute, says):
    case, _ = run(lambda p, s: compute(p["p"].data, s["w"]), {"p": ((6, 8), F)}, W)
    assert says in case.params[0].excluded
    assert case.copies == [] and case.fills == []


def test_a_spoiled_source_does_not_spoil_what_was_copied_before():
    def load(p, s):
        p["p"].copy_(s["w"])
        s["w"].zero_()
        p["q"].copy_(s["w"])

    case, _ = run(load, {"p": ((6, 8), F), "q": ((6, 8), F)}, W)
    assert [bool(p.excluded) for p in case.params] == [False, True]


def test_deciding_by_values_is_refused():
    with pytest.raises(recorder.CaptureError, match="value"):
        run(lambda p, s: bool((s["w"] > 0).any()), {"p": ((6, 8), F)}, W)
    with pytest.raises(recorder.CaptureError, match="as a number"):
        run(lambda p, s: float(s["w"][0, 0]), {"p": ((6, 8), F)}, W)


def test_replaced_parameters():
    made = {"p": torch.empty(6, 8, device="meta"), "q": torch.empty(6, 8, device="meta")}
    source = torch.empty(6, 8, device="meta")

    def load(weights):
        w = dict(weights)["w"]
        made["p"], made["q"] = w.t().contiguous(), w * 2

    found, now = recorder.record([("w", source)], dict(made), load, lambda: made.items())
    case = recorder.case_of(found, now, 1, NAMES)
    assert [(p.shape, p.excluded) for p in case.params] == [([8, 6], ""), ([6, 8], "loader computes: mul")]


def test_aliases_and_unread():
    def load(p, s):
        p["p"].copy_(s["w"])
        _ = s["x"].narrow(0, 0, 1)

    made = torch.empty(6, 8, device="meta")
    found, now = recorder.record(
        [("w", torch.empty(6, 8, device="meta")), ("x", torch.empty(3, device="meta"))], {"p": made, "head": made},
        lambda weights: load({"p": made}, dict(weights)), lambda: [("p", made), ("head", made)],
    )  # fmt: skip
    case = recorder.case_of(found, now, 2, NAMES)
    assert (case.alias, case.unread, [p.name for p in case.params]) == ({"head": "p"}, [1], ["p"])


def test_file_round_trip():
    case, sources = run(lambda p, s: (p["p"].zero_(), p["p"][:6].copy_(s["w"])), {"p": ((7, 8), F)}, W)
    case.arch, case.tp = "A", 1
    c = schema.Capture("e", "f", "m", {"a": 1}, sources, [case])
    raw = schema.encode(c)
    assert raw == schema.encode(schema.decode(raw)), "equal content, equal bytes"
    assert replay.difference(schema.decode(raw).case(1, 0), case, sources) == []
    with pytest.raises(KeyError, match="no case"):
        c.case(2, 0)
    other = schema.decode(raw).case(1, 0)
    other.copies[0].ops.append(["narrow", [0, 0, 6]])
    assert replay.difference(other, case, sources) == []
    other.copies[0].offset += 8
    assert replay.difference(other, case, sources) != []


def test_what_no_arena_can_have():
    """A buffer is told apart from a parameter that the loader makes itself: both are beyond a refit, and only the second
    counts as not read, since it was none of the model's when the engine noted its layout."""
    buffer = torch.zeros(8)

    def load(p, s):
        p["p"].copy_(s["w"])
        buffer.copy_(s["scale"])
        p["bias"] = torch.nn.Parameter(torch.empty(4), requires_grad=False)
        p["bias"][:3].data.copy_(s["bias"])

    case, _ = run(load, {"p": ((6, 8), F)}, {**W, "scale": ((8,), F), "bias": ((3,), F), "more": ((1,), F)}, device="cpu")
    assert [p.name for p in case.params] == ["p"]
    assert case.unread == [2, 3] and case.elsewhere == [1, 2]
