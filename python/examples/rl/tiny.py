"""The policy: a tiny Qwen3 with random weights, a tokenizer that is written down rather than trained, and what it is paid for.

usage: tiny.py FOLDER    writes the checkpoint that trainer and server start from

Nothing is fetched. The model is of the family that is run in earnest (tied embedding, grouped-query attention), with 935
tokens: three special ones, the 256 bytes, and all pairs of lower-case letters. 935 is no multiple of anything, so shards
are uneven and vLLM pads the vocabulary.
"""

from __future__ import annotations

import sys

#: Texts that completions are sampled for, and groups of completions compared within.
PROMPTS = ("The ship is ", "A dock has ", "Weights flow to ", "We trade in ")

#: What the policy is paid for.
VOWELS = frozenset("aeiou")


def reward(text: str) -> float:
    """The share of vowels among a completion's characters: 0 to 1, and anybody can check it."""
    return sum(c in VOWELS for c in text) / max(1, len(text))


def tokenizer():
    """Bytes, and one merge for each pair of letters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz"
    pairs = [(a, b) for a in letters for b in letters]
    tokens = ["<pad>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in pairs)]
    t = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=pairs))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def main() -> None:
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    words = tokenizer()
    config = Qwen3Config(
        vocab_size=len(words), hidden_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
        intermediate_size=256, max_position_embeddings=512, tie_word_embeddings=True, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    with torch.no_grad():
        for p in model.parameters():  # wide enough that every weight shows in the logprobs
            p.normal_(0, 0.08) if p.ndim > 1 else p.normal_(1, 0.05)
    model.save_pretrained(sys.argv[1])
    words.save_pretrained(sys.argv[1])


if __name__ == "__main__":
    main()
