"""Asks fresh engines, each started from one checkpoint, what the refit server was asked.

usage: prove.py ANSWERS STEP=CHECKPOINT …    ANSWERS as demo.py writes them; ends with status 1 where anything differs

Each checkpoint gets an engine of its own: a new process, made by vLLM's own offline class, which loads the checkpoint by vLLM's own
loaders. Drydock's back end is not even configured. Only Python's imports are shared (the engine's process is forked after
them), which is why this takes seconds for each and not the minute of a server.
"""

from __future__ import annotations

import json
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
        engine.llm_engine.engine_core.shutdown()
    return [Answer(list(f.token_ids), [], [_best(lp, t) for lp, t in zip(f.logprobs, f.token_ids, strict=True)]) for f in found]


def _best(candidates: dict[int, Any], token: int) -> list[tuple[int, float]]:
    """As the server gives them: the token that was taken, then the candidates in their order of rank."""
    ranked = sorted(candidates.items(), key=lambda item: item[1].rank)
    return [(token, candidates[token].logprob), *((t, lp.logprob) for t, lp in ranked)]


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text())
    os.environ.update(vllm_environ(asked["tp"]), VLLM_WORKER_MULTIPROCESSING_METHOD="fork")
    wrong = 0
    for name, checkpoint in (a.split("=", 1) for a in sys.argv[2:]):
        began = time.monotonic()
        found = fresh(checkpoint, asked["prompts"], asked["tokens"], asked["best"], asked["tp"])
        served = [Answer(a["tokens"], [], [[(t, lp) for t, lp in step] for step in a["logprobs"]]) for a in asked["answers"][name]]
        equal = [same(a, b) for a, b in zip(found, served, strict=True)]
        n = sum(len(c) for a in served for c in a.logprobs)
        print(
            f"step {name}: {sum(equal)} of {len(equal)} prompts equal bit for bit to a fresh engine of its checkpoint "
            f"({n} logprobs, {time.monotonic() - began:.1f} s)",
            flush=True,
        )
        if not all(equal):
            for a, b in zip(found, served, strict=True):
                print(f"  fresh {a.tokens[:6]} {a.logprobs[0][:2]}, refit {b.tokens[:6]} {b.logprobs[0][:2]}")
            wrong += 1
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
