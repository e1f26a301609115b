"""Trains a tiny model with FSDP2 on the CPU and publishes each step. Run two ranks of it:

    refitctl init --model tiny
    torchrun --standalone --nproc-per-node 2 python/examples/train_fsdp2.py --model tiny --steps 5

The lines about Drydock are the import, the `with`, and the call in the loop. Nothing else of a trainer changes.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import drydock


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--receivers", type=int, default=0, help="receivers that must serve a step before the next")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(97, 24), nn.Linear(24, 48, bias=False), nn.GELU(), nn.Linear(48, 97, bias=False))
    for layer in model:
        fully_shard(layer, mesh=dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),)))
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    with drydock.Publisher(args.model, model, spawn=True) as publisher:
        for step in range(1, args.steps + 1):
            tokens = torch.randint(0, 97, (32,))
            loss = nn.functional.cross_entropy(model(tokens), (tokens * 7 + 3) % 97)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            published = publisher.publish(step)
            if args.receivers:
                publisher.wait_served(step, args.receivers)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {loss.item():.3f}, {published.state}, blocked {published.blocked * 1e3:.1f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
