"""The demo model: a small random Llama and a byte-level tokenizer, made from a seed in memory."""

from typing import Any

import torch
from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import decoders, models, pre_tokenizers
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, TokenizersBackend

from kvscope_engine.model.attention.interface import IMPLEMENTATION
from kvscope_engine.model.tokenizer import BYTE_TO_CHAR

NAME = "demo"

_SPECIAL_TOKENS = ("<s>", "</s>", "<pad>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"
)


def demo_model(seed: int, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """4 layers, grouped queries, 4,096 positions, 0.8 million parameters; about 0.1 s.

    The same weights for the same seed, whatever the dtype and device. Leaves torch's global
    generator as it was. Greedy output is noise that soon repeats itself.
    """
    bos, eos, pad = range(256, 256 + len(_SPECIAL_TOKENS))
    config = LlamaConfig(
        vocab_size=256 + len(_SPECIAL_TOKENS),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        bos_token_id=bos,
        eos_token_id=eos,
        pad_token_id=pad,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.set_attn_implementation(IMPLEMENTATION)
    nn.Module.to(model, device=device, dtype=dtype)
    model.train(False)
    return model


def demo_tokenizer() -> TokenizersBackend:
    """One token per byte of UTF-8: N bytes are N tokens, token i < 256 is byte i."""
    alphabet = [*BYTE_TO_CHAR, *_SPECIAL_TOKENS]
    vocabulary = {token: token_id for token_id, token in enumerate(alphabet)}
    backend = BackendTokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    bos, eos, pad = _SPECIAL_TOKENS
    make: Any = TokenizersBackend  # untyped
    tokenizer: TokenizersBackend = make(
        tokenizer_object=backend,
        bos_token=bos,
        eos_token=eos,
        pad_token=pad,
        chat_template=_CHAT_TEMPLATE,
    )
    return tokenizer
