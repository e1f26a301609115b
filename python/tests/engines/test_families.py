"""Captures beside the loaders themselves, for families that nobody has recorded before.

transformers makes a tiny model of each family and says what its checkpoint holds. What is recorded on the meta device must be
what vLLM's loader does on the CPU with real bytes: every parameter that the capture makes is compared with what the loader
made of it, byte for byte, for each rank of two parallel sizes. What a loader computes must be excluded, and nothing else.
"""

import json
import os

import pytest

pytestmark = pytest.mark.vllm

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

# Sizes under the names that configurations have for them; each takes those that it knows.
SMALL = {
    "hidden_size": 64, "n_embd": 64, "d_model": 64, "intermediate_size": 96, "moe_intermediate_size": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_attention_heads": 8, "n_head": 8, "num_key_value_heads": 4, "head_dim": 16,
    "vocab_size": 1000, "max_position_embeddings": 128, "n_positions": 128,
    "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LATENT = {"q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16}

# Families with what they need besides; "excluded" are the ends of the names of parameters that their loaders compute.
FAMILIES = {
    "cohere": {}, "cohere2": {}, "cwm": {}, "ernie4_5": {}, "exaone4": {}, "gemma2": {}, "glm": {}, "glm4": {}, "gpt_neox": {},
    "granite": {}, "helium": {}, "hrm_text": {}, "hunyuan_v1_dense": {}, "ministral3": {}, "nanochat": {}, "olmo": {}, "olmo3": {},
    "persimmon": {}, "starcoder2": {}, "vaultgemma": {}, "youtu": {}, "gptj": {"n_inner": 96, "rotary_dim": 8},
    "lfm2": {"block_dim": 64, "conv_dim": 64, "block_ff_dim": 96, "layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 16, "head_dim": 8, "state_size": 16, "n_groups": 2, "excluded": ("mixer.A",)},
    "deepseek_v3": {**LATENT, "topk_method": "noaux_tc", "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1},
    "exaone_moe": {}, "flex_olmo": {}, "glm4_moe": {"first_k_dense_replace": 1, "head_dim": 16, "n_group": 1, "topk_group": 1},
    "granitemoe": {}, "jamba": {"excluded": ("mamba.A",)}, "llama4_text": {}, "qwen3_next": {}, "qwen3_5_moe_text": {}, "solar_open": {},
}  # fmt: skip


def configure(family, folder, more):
    """Writes the configuration of a tiny model."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    made = AutoConfig.for_model(family)
    known = set(made.to_dict()) | set(made.attribute_map)
    config = type(made)(**{**{k: v for k, v in SMALL.items() if k in known}, **more})
    written = {k: v for k, v in config.to_dict().items() if v is not None}
    written |= {"dtype": "bfloat16", "architectures": [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]]}
    (folder / "config.json").write_text(json.dumps(written, default=str))


def loaded(config, weights, tp, rank):
    """The parameters that vLLM's own loader makes of real weights, for one rank."""
    import torch
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    from drydock.capture import simulated

    with simulated.group(config, tp, rank), set_default_torch_dtype(config.model_config.dtype), torch.no_grad():
        config.compilation_config.static_forward_context.clear()
        with torch.device("cpu"):
            model = initialize_model(config)
        model.load_weights([(name, t.clone()) for name, t in weights])
        return {name: p.detach() for name, p in model.named_parameters(remove_duplicate=False)}


def raw(t):
    import torch

    return t.contiguous().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loader_does_what_was_recorded(family, tmp_path):
    import torch

    from drydock.capture import checkpoint, replay, simulated

    more = dict(FAMILIES[family])
    computed = more.pop("excluded", ())
    configure(family, tmp_path, more)
    sources = checkpoint.sources(tmp_path)
    numbers = torch.Generator().manual_seed(1)
    weights = [torch.randint(1, 2000, s.shape, generator=numbers).div(97).to(simulated.TORCH_TYPES[s.dtype]) for s in sources]
    named = [(s.name, t) for s, t in zip(sources, weights, strict=True)]
    expert = any(".experts." in s.name for s in sources)
    for tp, ep in [(1, False), (2, False), *([(2, True)] if expert else [])]:
        config = simulated.configuration(tmp_path, tp, ep)
        for rank in range(tp):
            (case,) = simulated.capture(tmp_path, sources, [(tp, rank, ep)], family).cases
            real = loaded(config, named, tp, rank)
            assert {p.name for p in case.params if p.excluded} == {n for n in real if n.endswith(computed or ("\0",))}
            made = replay.params(case, lambda p: torch.zeros(p.shape, dtype=simulated.TORCH_TYPES[p.dtype]), lambda i: weights[i])
            for p, t in made:
                assert torch.equal(raw(t), raw(real[p.name])), (tp, rank, ep, p.name)
