"""What must be true of the answers: each of one version, the right one, and the logprobs those of the version's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from load import Record
from server import Answer, Server

#: Logprobs of the fixed prompts by one version, one answer for each.
Probe = list[Answer]


def probe(server: Server, prompts: Sequence[Sequence[int]], tokens: int, best: int) -> Probe:
    """Asks each prompt by itself. Nothing else may be under way: batches must be equal where logprobs are to be."""
    return [server.generate(list(p), tokens=tokens, logprobs=best)[0] for p in prompts]


def same(a: Answer, b: Answer) -> bool:
    """Equal tokens, and equal candidates with equal logprobs, bit for bit. Candidates of equal logprob, which bfloat16 has
    many of, are in no order."""
    return a.tokens == b.tokens and [sorted(c) for c in a.logprobs] == [sorted(c) for c in b.logprobs]


def distance(a: Answer, b: Answer) -> float:
    """How far two answers to a prompt are from each other: the mean difference of their candidates' logprobs, in nats, up
    to the first token in which they differ. Requests beside others are computed in other batches, and differ in the last
    bits of bfloat16; other weights differ by much more."""
    total, n = 0.0, 0
    for x, y in zip(a.logprobs, b.logprobs, strict=False):
        other = dict(y)
        for token, logprob in x:
            if token in other:
                total, n = total + abs(logprob - other[token]), n + 1
            else:  # it is not among the other's best: at least as far as the worst of them
                total, n = total + max(0.0, logprob - min(other.values())), n + 1
        if x[0][0] != y[0][0]:
            break
    return total / max(1, n)


@dataclass
class Verdict:
    """What became of the load's requests."""

    answers: int = 0
    failed: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)  #: answers with tokens of several versions, or of none
    exact: int = 0  #: equal bit for bit to the probe of the version that they are labelled with
    nearest: int = 0  #: not equal, and nearer to it than to all others
    wrong: list[str] = field(default_factory=list)  #: nearer to another version

    @property
    def good(self) -> bool:
        return not (self.failed or self.mixed or self.wrong)

    def __str__(self) -> str:
        return (
            f"{self.answers} requests beside the refits: {len(self.failed)} failed, {len(self.mixed)} mixed, {len(self.wrong)} of another "
            f"version than their label; {self.exact} equal to their version's probe bit for bit, {self.nearest} nearest to it"
        )


def judge(records: Sequence[Record], probes: Mapping[str, Probe]) -> Verdict:
    """Compares every answer with what the versions answer when nothing else is under way."""
    out = Verdict()
    for r in records:
        out.answers += 1
        if r.answer is None or r.answer.finish != "length":
            out.failed.append(r.error or f"finished by {r.answer.finish if r.answer else 'nothing'}")
            continue
        if len(r.answer.versions) != 1:
            out.mixed.append(f"an answer is of {r.answer.versions}")
            continue
        (label,) = r.answer.versions
        if label not in probes:
            out.wrong.append(f"label {label} was never served")
        elif same(r.answer, probes[label][r.prompt]):
            out.exact += 1
        else:
            nearest = min(probes, key=lambda v: distance(r.answer, probes[v][r.prompt]))
            if nearest == label:
                out.nearest += 1
            else:
                out.wrong.append(f"an answer labelled {label} is nearer to {nearest}")
    return out
