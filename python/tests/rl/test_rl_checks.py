"""The example's own judgement: it must find what it is there to find."""

from __future__ import annotations

import json

import checks
import pytest
import report
import tiny
from load import Record
from server import Answer

pytestmark = pytest.mark.rl


def answer(*logprobs: float, versions: tuple[str, ...] = ("1.1",), finish: str = "length") -> Answer:
    """An answer of tokens 0, 1, …, with the logprobs given and one more candidate each."""
    return Answer(list(range(len(logprobs))), list(versions), [[(i, lp), (99, lp - 1)] for i, lp in enumerate(logprobs)], finish)


PROBES = {"1.1": [answer(-1.0, -2.0)], "1.2": [answer(-1.5, -2.5)]}


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (answer(-1.0, -2.0), "exact"),
        (answer(-1.01, -2.0), "nearest"),
        (answer(-1.5, -2.5, versions=("1.2",)), "exact"),
        (answer(-1.5, -2.5), "wrong"),  # labelled with the version before
        (answer(-1.0, -2.0, versions=("1.1", "1.2")), "mixed"),
        (answer(-1.0, -2.0, versions=()), "mixed"),
        (answer(-1.0, -2.0, versions=("9.9",)), "wrong"),
        (answer(-1.0, finish="abort"), "failed"),
        (None, "failed"),
    ],
)
def test_judge(got: Answer | None, want: str) -> None:
    verdict = checks.judge([Record(0, got, "" if got else "refused")], PROBES)
    counted = {k: v if isinstance(v, int) else len(v) for k, v in vars(verdict).items()}
    assert counted == {"answers": 1, "failed": 0, "mixed": 0, "exact": 0, "nearest": 0, "wrong": 0} | {want: 1}
    assert verdict.good == (want in ("exact", "nearest"))


def test_same_is_bit_for_bit() -> None:
    assert checks.same(answer(-1.0), answer(-1.0))
    assert not checks.same(answer(-1.0), answer(-1.0000000000000002))
    tied = [(0, -1.0), (0, -1.0), (5, -1.0)]
    assert checks.same(Answer([0], [], [tied]), Answer([0], [], [[tied[0], tied[2], tied[1]]]))


def test_distance_ends_where_the_tokens_part() -> None:
    """After that the two are answers to different questions."""
    a, b = answer(-1.0, -2.0, -3.0), answer(-1.0, -2.5, -9.0)
    b.tokens[1], b.logprobs[1] = 7, [(7, -2.5), (1, -2.6)]
    assert 0 < checks.distance(a, b) < 1


def test_refits_reads_a_receivers_lines() -> None:
    refits = report.Refits()
    stages = {name: {"duration_ms": 1.5} for name in (*report.STAGING, "installation")}
    record = {"version": 3, "stages": stages, "drydock": {"run": 2, "outcome": "applied"}}
    refits.line(report.PREFIX + json.dumps(record | {"version": 2, "drydock": {"run": 2, "outcome": "failed"}}))
    refits.line('{"level":"WARN","msg":"something","error":"odd"}')
    refits.line("not of ours")
    assert not refits.whole("2.3")
    refits.line(report.PREFIX + json.dumps(record))
    refits.line('{"level":"INFO","msg":"applied","key":"2.3","pause":31000000}')
    assert refits.whole("2.3") and not refits.whole("2.2")
    assert refits.pauses["2.3"] == pytest.approx(0.031)
    assert refits.stage("2.3", *report.STAGING) == pytest.approx(0.0105)
    assert refits.complaints == ["something: odd"]


def test_reward() -> None:
    assert [tiny.reward(t) for t in ("", "xyz", "aeiou", "abab")] == [0, 0, 1, 0.5]
