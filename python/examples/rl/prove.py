"""Asks fresh engines, each started from one checkpoint, what the refit server was asked.

usage: prove.py ANSWERS STEP=CHECKPOINT …    ANSWERS as demo.py writes them; ends with status 1 where anything differs

Each checkpoint gets an engine of its own, made by vLLM's offline class in a new process, which loads the checkpoint by vLLM's own
loaders. Drydock's back end is not even configured. The processes are forked from one that has done nothing but import vLLM: that is
all that they share, and why this takes seconds for each and not the minute of a server.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

from checks import same
from processes import LIMITS, vllm_environ
from server import Answer


def fresh(checkpoint: str, prompts: list[list[int]], tokens: int, best: int, tp: int) -> list[Answer]:
    """The answers of a new engine. One prompt after the other: batches are to be those of the server."""
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    engine = LLM(checkpoint, dtype="bfloat16", enforce_eager=True, tensor_parallel_size=tp, **LIMITS)
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, logprobs=best, detokenize=False)
    try:
        found = [engine.generate(TokensPrompt(prompt_token_ids=p), params, use_tqdm=False)[0].outputs[0] for p in prompts]
    finally:
        engine.llm_engine.engine_core.shutdown()  # workers of a tensor-parallel engine are processes of their own
    return [Answer(list(f.token_ids), [], [_best(lp, t) for lp, t in zip(f.logprobs, f.token_ids, strict=True)]) for f in found]


def _best(candidates: dict[int, Any], token: int) -> list[tuple[int, float]]:
    """As the server gives them: the token that was taken, then the candidates in their order of rank."""
    ranked = sorted(candidates.items(), key=lambda item: item[1].rank)
    return [(token, candidates[token].logprob), *((t, lp.logprob) for t, lp in ranked)]


def compare(name: str, checkpoint: str, asked: dict[str, Any]) -> bool:
    """One step: whether a fresh engine gives every token and logprob that the server gave."""
    began = time.monotonic()
    found = fresh(checkpoint, asked["prompts"], asked["tokens"], asked["best"], asked["tp"])
    served = [Answer(a["tokens"], [], [[(t, lp) for t, lp in step] for step in a["logprobs"]]) for a in asked["answers"][name]]
    equal = [same(a, b) for a, b in zip(found, served, strict=True)]
    n = sum(len(candidates) for a in served for candidates in a.logprobs)
    print(
        f"step {name}: {sum(equal)} of {len(equal)} prompts equal bit for bit to a fresh engine of its checkpoint "
        f"({n} logprobs, {time.monotonic() - began:.1f} s)",
        flush=True,
    )
    for a, b, ok in zip(found, served, equal, strict=True):
        if not ok:
            print(f"  fresh {a.tokens[:6]} {a.logprobs[0][:2]}, refit {b.tokens[:6]} {b.logprobs[0][:2]}", flush=True)
    return all(equal)


def child(name: str, checkpoint: str, asked: dict[str, Any]) -> None:
    """The process of one engine; its status is the verdict."""
    sys.exit(0 if compare(name, checkpoint, asked) else 1)


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text())
    os.environ.update(vllm_environ(asked["tp"]), VLLM_ENABLE_V1_MULTIPROCESSING="0" if asked["tp"] == 1 else "1")
    import vllm.model_executor.models.qwen3
    import vllm.v1.worker.cpu_worker  # noqa: F401 (imported here, once, for all children)

    forked = multiprocessing.get_context("fork")
    bad = 0
    for name, checkpoint in (a.split("=", 1) for a in sys.argv[2:]):
        process = forked.Process(target=child, args=(name, checkpoint, asked))
        process.start()
        process.join(600)
        if process.exitcode != 0:
            process.kill()
            bad += 1
    print(f"{len(sys.argv) - 2 - bad} of {len(sys.argv) - 2} steps are proven")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
