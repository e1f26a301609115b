"""Trains a tiny Qwen3 by reinforcement, and refits a running vLLM server with every step. See docs/demo-rl.md.

    make demo-rl                          15 steps
    make demo-rl ARGS="--steps 20 --prove"

Real processes: a NATS server, two trainer ranks (FSDP2, gloo) with a sidecar each, a receiver, a vLLM server that samples for
the trainer and answers a load of requests all the while. What each does is in the file of its name; this one starts them,
watches, and tells.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import queue
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import checks
import report
from load import BEST, Load
from processes import ROOT, Child, World, ready, until
from server import Server

#: What the load and the probes ask. Shorter than a block of vLLM's prefix cache (128 tokens), so nothing is answered out of it.
FIXED = ("Here be dragons, and they ", "0123456789", "the quick brown fox jumps over the lazy dog; the dog ")

#: Tokens of each answer to them.
TOKENS = 24


def flags() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=15)
    p.add_argument("--tp", type=int, default=1, help="tensor-parallel size of the server")
    p.add_argument("--lr", type=float, default=None, help="default: the trainer's")
    p.add_argument(
        "--prove", nargs="?", const="some", choices=("some", "all"),
        help="compare logprobs with fresh engines of the trainer's checkpoints: first, middle and last step, or all",
    )  # fmt: skip
    p.add_argument("--engine", help="port of a server that runs already on a checkpoint of tiny.py, instead of a new one")
    p.add_argument("--dir", type=Path, help="folder for logs, traces and checkpoints; default: .cache/demo-rl/last")
    return p.parse_args()


class Demo:
    """One run."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.folder: Path = (args.dir or ROOT / ".cache/demo-rl/last").resolve()
        if args.dir is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise SystemExit(f"--dir {self.folder}: it is not empty")
        self.world = World(self.folder, "demo-rl")
        self.refits = report.Refits()
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.rows: list[report.Row] = []
        self.probes: dict[str, checks.Probe] = {}
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:6.1f}s] {text}", flush=True)

    def run(self) -> bool:
        """The whole of it; whether all that was checked is so."""
        self.start()
        self.load.begin()
        print("\n" + report.head(), flush=True)
        trainer = self.train()
        for _ in range(self.args.steps):
            self.step(trainer)
        until("the trainer to end", lambda: trainer.process.poll() is not None)
        self.load.end()
        good = self.tell()
        if self.args.prove:
            self.world.end()  # room for the fresh engines
            good = self.prove() and good
        return good

    def start(self) -> None:
        """Everything but the trainer."""
        self.init = self.folder / "init"
        self.world.checkpoint(self.init)
        self.say(f"policy      {self.init}")
        self.world.start_nats()
        child, self.server = None, Server("127.0.0.1", int(self.args.engine or 0))
        if not self.args.engine:
            child, self.server = self.world.vllm(self.init, self.args.tp)
            self.say(f"server      vLLM, tensor parallel {self.args.tp}, port {self.server.port}: starting")
        capture = self.world.capture(self.init, self.args.tp)
        self.say(f"capture     {capture}")
        for rank in range(2):
            self.world.sidecar(rank)
        ready(child, self.server)
        self.say(f"server      ready, serves version {self.server.version()!r}")
        self.world.receiver(self.server, capture, self.args.tp, line=self.refits.line)
        self.prompts = self.tokens(FIXED)
        self.load = Load(self.server, self.prompts, TOKENS)
        self.probes[self.server.version()] = checks.probe(self.server, self.prompts, TOKENS, BEST)

    def tokens(self, texts: tuple[str, ...]) -> list[list[int]]:
        """The server tokenizes, so that this process needs no library."""
        return [self.server.call("POST", "/tokenize", {"prompt": t})["tokens"] for t in texts]

    def train(self) -> Child:
        self.hold = self.folder / "hold"
        self.hold.mkdir()
        flags = ["--init", str(self.init), "--engine", f"{self.server.host}:{self.server.port}", "--sockets", str(self.world.sockets)]
        flags += ["--steps", str(self.args.steps), "--hold", str(self.hold)]
        flags += ["--save", str(self.folder / "checkpoints")] if self.args.prove else []
        flags += ["--lr", str(self.args.lr)] if self.args.lr else []
        return self.world.trainer("train.py", flags, 2, self.event)

    def event(self, line: str) -> None:
        """Takes a line of the trainer's output."""
        if line.startswith('{"event"'):
            self.events.put(json.loads(line))

    def next_event(self) -> dict[str, Any] | None:
        try:
            return self.events.get(timeout=0.2)
        except queue.Empty:
            return None

    def step(self, trainer: Child) -> None:
        """One step that the server has taken: its row, its probe, and on with it."""
        e = until("the next step", self.next_event, 600, alive=[*self.world.children])
        version = e["version"]
        until(f"what the receiver says of {version}", lambda: self.refits.whole(version))
        first = until(f"an answer of the load by {version}", lambda: self.load.first_token_of(version))
        timing = self.server.call("POST", "/collective_rpc", {"method": "drydock_status"})["results"][0]["timing"]
        with self.load:
            self.probes[version] = checks.probe(self.server, self.prompts, TOKENS, BEST)
        row = report.Row(
            e["step"], version, e["reward"], e["loss"], sample=e["sampled"] - e["began"], train=e["trained"] - e["sampled"],
            publish=e["blocked"], copy=e["copied"], commit=e["committed"] - e["free"],
            stage=self.refits.stage(version, *report.STAGING), install=self.refits.stage(version, "installation"),
            pause=self.refits.pauses[version], replace=timing["map"] + timing["replace"],
            first=first - e["trained"], answered=len(self.load.between(e["trained"], first)), nbytes=int(timing["nbytes"]),
        )  # fmt: skip
        self.rows.append(row)
        print(report.line(row), flush=True)
        (self.hold / str(e["step"])).touch()

    def tell(self) -> bool:
        """Totals."""
        rows, last = self.rows, self.rows[-1]
        verdict = checks.judge(self.load.records, self.probes)
        print(f"\n{len(rows)} steps of {last.nbytes / 1e6:.2f} MB; reward {rows[0].reward:.3f} → {last.reward:.3f}")
        print(verdict)
        for text in [*verdict.failed, *verdict.mixed, *verdict.wrong][:10]:
            print("  " + text)
        for text in dict.fromkeys(self.refits.complaints):
            print(f"  the receiver says: {text}")
        print("\nin milliseconds, without the first step:\n" + report.parts(rows))
        print(f"\nthe trace of the last version (all of them: bin/refitctl trace VERSION --model demo-rl --dir {self.world.traces}):\n")
        print(self.world.trace(last.version))
        answers = {v: [dataclasses.asdict(a) for a in p] for v, p in self.probes.items()}
        (self.folder / "probes.json").write_text(json.dumps(answers))
        (self.folder / "rows.json").write_text(json.dumps([dataclasses.asdict(r) for r in rows]))
        return verdict.good

    def prove(self) -> bool:
        """Has fresh engines say what the server said."""
        steps = {r.step: r.version for r in self.rows}
        if self.args.prove == "some":
            steps = {s: steps[s] for s in sorted({1, (1 + len(steps)) // 2, len(steps)})}
        asked = {
            "prompts": self.prompts, "tokens": TOKENS, "best": BEST, "tp": self.args.tp,
            "answers": {s: [dataclasses.asdict(a) for a in self.probes[v]] for s, v in steps.items()},
        }  # fmt: skip
        file = self.folder / "proof.json"
        file.write_text(json.dumps(asked))
        self.say(f"proof       fresh engines of {len(steps)} checkpoints")
        argv = [sys.executable, str(Path(__file__).with_name("prove.py")), str(file)]
        argv += [f"{s}={self.folder}/checkpoints/step-{s}" for s in steps]

        def tell(line: str) -> None:
            if line.startswith(("step ", "  fresh ")):  # the rest is vLLM's, and in the log
                print(line, flush=True)

        prover = self.world.start("prove", argv, line=tell)
        until("the proof", lambda: prover.process.poll() is not None, 600 * len(steps))
        if prover.process.returncode not in (0, 1):
            print(f"the proof did not come to an end (status {prover.process.returncode}): {prover.tail()}")
        return prover.process.returncode == 0


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    demo = Demo(flags())
    try:
        good = demo.run()
    finally:
        demo.world.end()
    print(f"\n{'all of it is so' if good else 'NOT all of it is so'}; logs: {demo.world.logs}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
