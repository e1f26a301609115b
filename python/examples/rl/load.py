"""Requests without pause, beside the refits: what happens to each of them is written down."""

from __future__ import annotations

import http.client
import threading
import time
from dataclasses import dataclass, field

from server import Answer, Server, ServerError

#: Candidates whose logprobs come with each token of an answer.
BEST = 5


@dataclass
class Record:
    """One request of the load, and its answer or what went wrong."""

    prompt: int
    answer: Answer | None = None
    error: str = ""


@dataclass
class Load:
    """Threads that ask greedy completions of fixed prompts, one after the other, until `end`.

    `quiet` is a context in which nothing is under way: numbers are comparable bit for bit only in equal batches.
    """

    server: Server
    prompts: list[list[int]]
    tokens: int = 24
    threads: int = 2
    pause: float = 0.05  #: seconds between an answer and the next request of a thread
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Condition()
        self._running, self._held, self._ended = 0, False, False
        self._threads = [threading.Thread(target=self._ask, args=(i,), daemon=True) for i in range(self.threads)]

    def begin(self) -> None:
        """Starts asking."""
        for t in self._threads:
            t.start()

    def end(self) -> None:
        """Stops, and waits for the last answers."""
        with self._lock:
            self._ended = True
            self._lock.notify_all()
        for t in self._threads:
            t.join(60)

    def __enter__(self) -> Load:
        """Holds the load: returns when no request is under way."""
        with self._lock:
            self._held = True
            if not self._lock.wait_for(lambda: self._running == 0, 120):
                raise TimeoutError("requests of the load are not answered within 120 s")
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._held = False
            self._lock.notify_all()

    def between(self, begin: float, end: float) -> list[Record]:
        """Requests that were answered in a time."""
        with self._lock:
            return [r for r in self.records if r.answer and begin <= r.answer.ended <= end]

    def first_token_of(self, version: str) -> float | None:
        """When the first token of a version was there, by time.time()."""
        with self._lock:
            times = [r.answer.first for r in self.records if r.answer and r.answer.versions == [version]]
        return min(times, default=None)

    def _ask(self, number: int) -> None:
        turn = number
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._ended or not self._held)
                if self._ended:
                    return
                self._running += 1
            record = Record(turn % len(self.prompts))
            try:
                record.answer = self.server.stream(self.prompts[record.prompt], self.tokens, BEST)
            except (ServerError, OSError, http.client.HTTPException, ValueError) as e:
                record.error = f"{type(e).__name__}: {e}"
            with self._lock:
                self.records.append(record)
                self._running -= 1
                self._lock.notify_all()
            turn += 1
            time.sleep(self.pause)
