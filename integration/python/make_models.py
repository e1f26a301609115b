"""Makes tiny random models with transformers, saved as the hub has them: bfloat16, sharded, with an index.

And one file with a tensor of each dtype that the safetensors package writes, odd sizes, a scalar and an empty one among them.
"""

import argparse
import pathlib

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config, Qwen3MoeConfig

# Odd vocabularies and widths, so that trainers get uneven shards; heads that two ranks can share.
SHAPE = dict(hidden_size=96, intermediate_size=208, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=128)
MODELS = {
    "qwen3": Qwen3Config(vocab_size=1003, head_dim=32, tie_word_embeddings=True, **SHAPE),
    "llama": LlamaConfig(vocab_size=997, tie_word_embeddings=False, **SHAPE),
    "qwen3-moe": Qwen3MoeConfig(vocab_size=1003, head_dim=32, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=48,
                                tie_word_embeddings=False, **SHAPE),
}

PLAIN = [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64, torch.float16,
         torch.bfloat16, torch.float32, torch.float64, torch.complex64]
EIGHT_BIT = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]


def every_dtype() -> dict[str, torch.Tensor]:
    """Random numbers for most; all 256 patterns, NaNs among them, for 8-bit floats, which a refit must carry as they are."""
    out = {f"plain.{d}": (torch.randn(7, 13) * 50).abs().to(d) for d in PLAIN}
    out |= {f"eight.{d}": torch.arange(256, dtype=torch.uint8).repeat(5).view(d).reshape(5, 256) for d in EIGHT_BIT}
    out["bool"] = torch.rand(3, 5, 7) > 0.5
    out["scalar"] = torch.tensor(3, dtype=torch.int64)
    out["empty"] = torch.empty(0, 4)
    return {name.replace("torch.", ""): t for name, t in out.items()}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("folder", type=pathlib.Path)
    folder = p.parse_args().folder
    for seed, (name, config) in enumerate(MODELS.items()):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(folder / name, max_shard_size="300KB")
        print(f"made {folder / name}: {len(list((folder / name).glob('*.safetensors')))} files", flush=True)
    (folder / "dtypes").mkdir()
    save_file(every_dtype(), folder / "dtypes" / "model.safetensors")
    print(f"made {folder / 'dtypes'}", flush=True)


if __name__ == "__main__":
    main()
