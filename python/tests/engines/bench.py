"""How fast an engine takes an arena: bytes of the arena over the time of the apply, beside memcpy of as many bytes.

One engine in this process, on the CPU, with a random Qwen3 that is large enough to measure. Two arenas of its capture are applied
by turns; each apply maps its file anew, as in a server, so page faults are part of it. Rounds of apply and memcpy take turns,
since a shared machine is faster at one time than at another.

usage: bench.py FOLDER [--layers 12] [--rounds 9]    the model and its capture are kept in FOLDER
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import make_arenas
import make_models
import torch
from test_vllm_engine import ROOT, Engine
from transformers import AutoModelForCausalLM, Qwen3Config

from drydock.capture import schema


def model(folder: pathlib.Path, layers: int) -> pathlib.Path:
    """A checkpoint of some 25 MB a layer."""
    path = folder / f"bench-{layers}"
    if (path / "model.safetensors").exists():
        return path
    config = Qwen3Config(
        vocab_size=1024, hidden_size=1024, num_hidden_layers=layers, num_attention_heads=16, num_key_value_heads=8, head_dim=64,
        intermediate_size=3072, max_position_embeddings=1024, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(path)
    make_models.tokenizer().save_pretrained(path)
    return path


def capture(path: pathlib.Path) -> schema.Capture:
    """By a process of its own: the fake groups must not meet the real ones."""
    out = path / "capture.json.gz"
    command = [sys.executable, "-m", "drydock.capture.cli", "vllm", "--model", str(path), "--cache", str(path), "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return schema.decode(out.read_bytes())


def announce(shm: pathlib.Path, version: int) -> dict[str, object]:
    return {
        "files": [str(shm / str(version) / "rank-0.safetensors")], "model": "org/tiny", "run": 7, "version": version, "rank": 0,
        "layout": "", "owner": "bench", "back": True, "traceparent": "",
    }  # fmt: skip


def show(what: str, times: list[float], nbytes: float) -> None:
    middle = statistics.median(times)
    print(f"{what:44} median {middle * 1e3:7.1f} ms ({min(times) * 1e3:.1f} to {max(times) * 1e3:.1f})  {nbytes / middle / 1e9:6.2f} GB/s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    path = model(args.folder, args.layers)
    recorded = capture(path)
    with tempfile.TemporaryDirectory(dir=ROOT, prefix="drydock-bench-") as folder:
        shm = pathlib.Path(folder)
        for version in (1, 2):
            make_arenas.make(recorded, path, shm / str(version), 1, 7, version)
        engine = Engine(path)
        engine.init(shm, "bench")
        parts: dict[str, list[float]] = {"map": [], "replace": [], "apply": [], "memcpy": []}
        nbytes = 0.0
        for k in range(args.rounds + 2):
            engine.stage(announce(shm, 1 + k % 2))
            began = time.perf_counter()
            engine.worker("finish_weight_update")
            took = time.perf_counter() - began
            status = engine.rpc("drydock_status")
            assert status["state"] == "applied", status
            nbytes = status["timing"]["nbytes"]
            source, destination = torch.ones(int(nbytes), dtype=torch.uint8), torch.zeros(int(nbytes), dtype=torch.uint8)
            began = time.perf_counter()
            destination.copy_(source)
            if k >= 2:  # what is set up at the first apply of each file is not of a step
                parts["memcpy"].append(time.perf_counter() - began)
                parts["apply"].append(took)
                for part in ("map", "replace"):
                    parts[part].append(status["timing"][part])
        engine.close()
    print(f"{nbytes / 1e6:.0f} MB in {len(recorded.cases[0].params)} parameters, {torch.get_num_threads()} threads, {args.rounds} rounds")
    show("memcpy, private memory to private memory", parts["memcpy"], nbytes)
    show("apply: the call until the rank has applied", parts["apply"], nbytes)
    show("  of it: map the arena and check its header", parts["map"], nbytes)
    show("  of it: copy and post-process", parts["replace"], nbytes)


if __name__ == "__main__":
    main()
