"""Makes the capture of the model that a server runs, for a receiver that has none.

The recorder needs a process of its own: this one's groups are real. It takes half a minute, so it is started and asked
for; the result lies in the cache of captures, by engine version, model configuration and parallel shape.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


class Capturing:
    """The one capture that a worker makes."""

    def __init__(self, model: str, tp: int, ep: bool, cache: str = "") -> None:
        self._command = [sys.executable, "-m", "drydock.capture.cli", "vllm", "--model", model, "--tp", str(tp)]
        self._command += ["--ep"] if ep else []
        self._command += ["--cache", cache] if cache else []
        self._process: subprocess.Popen[str] | None = None
        self._answer: dict[str, Any] = {}

    def ask(self) -> dict[str, Any]:
        """Starts it at the first call. capture: running, ready or failed; file: where it lies, when it is ready."""
        if self._answer:
            return self._answer
        if self._process is None:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self._process.poll() is None:
            return {"capture": "running"}
        out, err = self._process.communicate()
        try:
            file = json.loads(out.strip().splitlines()[-1])["file"]
            self._answer = {"capture": "ready", "file": file, "excluded": [x for x in err.splitlines() if x.startswith("excluded ")]}
            return self._answer
        except (ValueError, IndexError, KeyError):
            self._process = None  # the next call tries again
            return {"capture": "failed", "error": err[-2000:]}
