"""The trainer: GRPO on the vowels of completions that a vLLM server samples. Two ranks of it, under torchrun.

    torchrun --standalone --nproc-per-node 2 train.py --init DIR --engine 127.0.0.1:8101 --sockets DIR --steps 15

A step: each rank has its share of the groups sampled by the server, pays them, takes one step down the policy gradient, and
publishes its shards. The next step begins when the receiver says that the server has them, so every sample is on policy;
the answers say by which version they were made, and anything else ends the run.

What is Drydock's: the import, the `with`, and the three calls after the optimizer's step. FSDP2 keeps float32 masters
in shards; what is published is bfloat16, cast while it is copied, and no full tensor is gathered for it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from pathlib import Path

import tiny
import torch
import torch.distributed as dist
from server import Answer, Server
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

import drydock


def flags() -> argparse.Namespace:
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="demo-rl", help="the name under which it is published")
    p.add_argument("--init", required=True, help="checkpoint to start from, which the server serves")
    p.add_argument("--engine", required=True, help="host:port of the server")
    p.add_argument("--sockets", required=True, help="folder with rank-0.sock …, one sidecar for each rank")
    p.add_argument("--steps", type=int, default=15)
    p.add_argument("--group", type=int, default=12, help="completions of a prompt, which are compared with each other")
    p.add_argument("--tokens", type=int, default=16, help="of a completion")
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--save", help="folder for a checkpoint of each step: only to prove that the server has the same")
    p.add_argument("--hold", help="folder: before the next step, wait until a file named by this step is in it")
    return p.parse_args()


def load(init: str) -> PreTrainedModel:
    """The policy in float32, sharded over all ranks."""
    model = AutoModelForCausalLM.from_pretrained(init, dtype=torch.float32)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def sample(server: Server, prompts: list[list[int]], args: argparse.Namespace, step: int, version: str) -> list[list[Answer]]:
    """A group of completions for each prompt, all by the version that is trained on."""
    groups = [
        server.generate(p, n=args.group, seed=1000 * step + 10 * dist.get_rank() + i, tokens=args.tokens, temperature=1.0)
        for i, p in enumerate(prompts)
    ]
    made_by = {v for group in groups for a in group for v in a.versions}
    if made_by != {version}:
        raise RuntimeError(f"step {step}: the server's samples are of {sorted(made_by)}, expected {version}")
    return groups


def objective(model: PreTrainedModel, prompts: list[list[int]], groups: list[list[Answer]], rewards: torch.Tensor) -> torch.Tensor:
    """GRPO without its clip, which does nothing on policy: each completion's logprob, weighted by how much better it is
    than its group."""
    advantage = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    loss = torch.zeros(())
    for prompt, group, weights in zip(prompts, groups, advantage, strict=True):
        tokens = torch.tensor([prompt + a.tokens for a in group])
        logits = model(tokens[:, :-1], use_cache=False).logits[:, len(prompt) - 1 :]
        logprobs = logits.log_softmax(-1).gather(-1, tokens[:, len(prompt) :, None]).squeeze(-1)
        loss = loss - (weights[:, None] * logprobs).mean() / len(prompts)
    return loss


def save(model: PreTrainedModel, words: PreTrainedTokenizerBase, folder: Path) -> None:
    """A checkpoint as anybody would save it: gathered by torch, cast by torch. Drydock has no part in it."""
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        model.config.dtype = torch.bfloat16
        model.save_pretrained(folder, state_dict={k: v.to(torch.bfloat16) for k, v in whole.items()})
        words.save_pretrained(folder)


def tell(**event: object) -> None:
    """One line of JSON for each event, of rank 0."""
    if dist.get_rank() == 0:
        print(json.dumps(event), flush=True)


def hold(folder: str, step: int) -> None:
    """Whoever watches looks at the server first."""
    deadline = time.monotonic() + 600
    while not Path(folder, str(step)).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"step {step}: nobody said that training may go on")
        time.sleep(0.01)


def main() -> None:
    args = flags()
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    words = AutoTokenizer.from_pretrained(args.init)
    model = load(args.init)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    host, port = args.engine.rsplit(":", 1)
    server, mine = Server(host, int(port)), [words.encode(p) for p in tiny.PROMPTS[rank::world]]
    version = server.version()

    socket = os.path.join(args.sockets, f"rank-{rank}.sock")
    with drydock.Publisher(args.model, model, socket=socket, dtype="bfloat16") as publisher:
        for step in range(1, args.steps + 1):
            began = time.time()
            groups = sample(server, mine, args, step, version)
            sampled = time.time()
            rewards = torch.tensor([[tiny.reward(words.decode(a.tokens)) for a in group] for group in groups])
            loss = objective(model, mine, groups, rewards)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            trained = time.time()

            published = publisher.publish(step)
            free = time.time()
            published.run = publisher.wait_committed(step).run
            committed = time.time()
            publisher.wait_served(step)
            served = time.time()

            version = f"{published.run}.{step}"
            mean = torch.tensor([rewards.mean().item(), loss.item()])
            dist.all_reduce(mean, dist.ReduceOp.SUM)
            if args.save:
                save(model, words, Path(args.save, f"step-{step}"))
            tell(event="step", step=step, version=version, reward=mean[0].item() / world, loss=mean[1].item() / world,
                 blocked=published.blocked, copied=published.copied, began=began, sampled=sampled, trained=trained, free=free,
                 committed=committed, served=served)  # fmt: skip
            if args.hold:
                hold(args.hold, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
