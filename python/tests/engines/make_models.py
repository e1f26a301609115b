"""Makes tiny random models with a tokenizer, several sets of weights of each, as a trainer would save them.

usage: make_models.py FOLDER    makes FOLDER/dense-1 … dense-3 and FOLDER/moe-1 … moe-3
"""

import pathlib
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3MoeConfig

COMMON = dict(
    vocab_size=1024, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    intermediate_size=256, max_position_embeddings=1024, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
CONFIGS = {
    # Tied: on CPU the output head has a packed copy of the embedding. Biases: they are never on the meta device.
    "dense": Qwen3Config(tie_word_embeddings=True, attention_bias=True, **COMMON),
    "moe": Qwen3MoeConfig(
        tie_word_embeddings=False, moe_intermediate_size=64, num_experts=8, num_experts_per_tok=2, decoder_sparse_step=1,
        mlp_only_layers=[0], norm_topk_prob=True, **COMMON,
    ),
}  # fmt: skip


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and three more: nothing is trained, nothing is fetched."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {t: i for i, t in enumerate(["<pad>", "<s>", "</s>", *alphabet])}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    for kind, config in CONFIGS.items():
        for seed in (1, 2, 3):
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
            with torch.no_grad():
                for p in model.parameters():  # spread enough that every weight shows in the logprobs
                    p.normal_(0, 0.08) if p.ndim > 1 else p.normal_(1, 0.05)
            model.save_pretrained(folder / f"{kind}-{seed}")
            tokenizer().save_pretrained(folder / f"{kind}-{seed}")


if __name__ == "__main__":
    main()
