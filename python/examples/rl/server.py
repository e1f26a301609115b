"""A vLLM server as this example asks it: tokens in, tokens out, with the version that made them.

`/inference/v1/generate` is made for RL: it takes and gives token ids, and says of each answer by which weights its tokens
were sampled (`weight_versions`, spans of output tokens; vLLM 0.32 with `--enable-scale-out`). The label is the engine's own: it
notes it with every step of generation, and Drydock changes it while generation is paused. The standard library is
enough to ask.
"""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass, field
from typing import Any

#: Seconds for an answer. The first completion of a fresh server takes 15 on idle cores.
PATIENCE = 300.0


@dataclass
class Answer:
    """One completion."""

    tokens: list[int]
    versions: list[str]  #: labels of the weights that sampled the tokens, in order: one, unless the answer is a mix
    logprobs: list[list[tuple[int, float]]] = field(default_factory=list)  #: for each token, the best candidates
    finish: str = ""  #: length, stop, abort
    sent: float = 0.0  #: time.time() when the request went out
    first: float = 0.0  #: when its first token was there; 0 where it was not streamed
    ended: float = 0.0


class ServerError(RuntimeError):
    """A request failed."""


class Server:
    """One server. Each call has a connection of its own, so threads may share it."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def call(self, method: str, path: str, body: Any = None, patience: float = PATIENCE) -> Any:
        """One call with JSON both ways."""
        with self._open(method, path, body, patience) as answer:
            raw = answer.read()
        return json.loads(raw) if raw else None

    def healthy(self) -> bool:
        """Whether the server takes requests."""
        try:
            self.call("GET", "/health", patience=5)
        except (ServerError, OSError, http.client.HTTPException):
            return False
        return True

    def version(self) -> str:
        """The label of the weights that serve: "run.version", or "default" for the checkpoint of the start."""
        return str(self.call("GET", "/weight_info")["weight_version"])

    def generate(self, prompt: list[int], n: int = 1, seed: int | None = None, tokens: int = 16, temperature: float = 0.0,
                 logprobs: int | None = None) -> list[Answer]:  # fmt: skip
        """n completions of one prompt, of exactly so many tokens."""
        sent = time.time()
        body = _request(prompt, tokens, temperature=temperature, n=n, seed=seed, logprobs=logprobs)
        found = self.call("POST", "/inference/v1/generate", body)
        return [_answer(c, sent) for c in sorted(found["choices"], key=lambda c: c["index"])]

    def stream(self, prompt: list[int], tokens: int, logprobs: int) -> Answer:
        """One greedy completion, token by token, so that the time of its first token is known."""
        out = Answer([], [], sent=time.time())
        body = {**_request(prompt, tokens, temperature=0.0, logprobs=logprobs), "stream": True}
        with self._open("POST", "/inference/v1/generate", body, PATIENCE) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise ServerError(f"in mid-answer: {chunk['error']}")
                for choice in chunk["choices"]:
                    part = _answer(choice, out.sent)
                    out.first = out.first or (time.time() if part.tokens else 0.0)
                    out.tokens += part.tokens
                    out.logprobs += part.logprobs
                    out.versions += part.versions
                    out.finish = part.finish or out.finish
        out.ended = time.time()
        return out

    def _open(self, method: str, path: str, body: Any, patience: float) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=patience)
        connection.request(
            method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json", "Connection": "close"}
        )
        answer = connection.getresponse()
        if answer.status != 200:
            raise ServerError(f"{method} {path}: HTTP {answer.status} {answer.read(2000).decode(errors='replace')}")
        return answer


def _request(prompt: list[int], tokens: int, **params: Any) -> dict[str, Any]:
    """Answers of a fixed length: an end token is a token like another, so that answers are comparable."""
    params = {k: v for k, v in params.items() if v is not None}
    return {"token_ids": prompt, "sampling_params": {"max_tokens": tokens, "ignore_eos": True, "detokenize": False, **params}}


def _answer(choice: dict[str, Any], sent: float) -> Answer:
    content = (choice.get("logprobs") or {}).get("content") or []
    return Answer(
        tokens=choice.get("token_ids") or [],
        versions=[span["version"] for span in choice.get("weight_versions") or ()],
        logprobs=[[(t["token_id"], t["logprob"]) for t in [c, *c["top_logprobs"]]] for c in content],
        finish=choice.get("finish_reason") or "",
        sent=sent,
        ended=time.time(),
    )
