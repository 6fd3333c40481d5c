"""Layout arithmetic, and writing and gathering by slot."""

import pytest
import torch
from transformers import Gemma4TextConfig, GPTBigCodeConfig, LlamaConfig, PreTrainedConfig

from engine.model.errors import UnsupportedArchitectureError
from engine.model.kv_cache import KVCache, KVLayout, LayerShape, kv_layout
from engine.model.mover import CacheMover

CPU = torch.device("cpu")


def test_bytes_of_a_grouped_query_model() -> None:
    config = LlamaConfig(
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, hidden_size=4096
    )
    layout = kv_layout(config, 16, torch.bfloat16)
    assert layout.layers == (LayerShape(8, 128),) * 32
    assert layout.bytes_per_token == 131_072  # Llama 3 8B: 128 KiB
    assert layout.bytes_per_block == 16 * 131_072


def test_multi_query_and_layers_that_differ() -> None:
    one_head = GPTBigCodeConfig(n_layer=2, n_head=4, n_embd=64, multi_query=True)
    assert kv_layout(one_head, 4, torch.float32).layers == (LayerShape(1, 16),) * 2
    mixed = Gemma4TextConfig(
        num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, hidden_size=64
    )
    assert len({layer.head_dim for layer in kv_layout(mixed, 4, torch.float32).layers}) == 2


def test_a_configuration_without_heads_is_refused() -> None:
    with pytest.raises(UnsupportedArchitectureError, match="does not say how many"):
        kv_layout(PreTrainedConfig(), 16, torch.float32)


def test_writes_to_slots_and_gathers_blocks() -> None:
    layout = KVLayout(layers=(LayerShape(2, 3),) * 2, block_size=4, dtype=torch.float32)
    cache = KVCache(layout, 5, CPU)
    key, value = torch.randn(2, 3, 2, 3)
    cache.write(1, torch.tensor([19, 4, 7]), key, value)
    keys, values = cache.gather(1, torch.tensor([4, 1]))
    assert keys.shape == (2, 4, 2, 3)
    torch.testing.assert_close(keys[[0, 1, 1], [3, 0, 3]], key)
    torch.testing.assert_close(values[[0, 1, 1], [3, 0, 3]], value)
    assert cache.layers[1].count_nonzero() == 2 * key.numel()
    assert not cache.layers[0].any()
    assert cache.layers[0].nbytes * 2 == 5 * layout.bytes_per_block


def test_a_copy_of_a_block_is_one_in_every_layer_and_leaves_the_others_alone() -> None:
    layers = (LayerShape(2, 3), LayerShape(1, 5), LayerShape(2, 3))  # two stacks
    cache = KVCache(KVLayout(layers=layers, block_size=4, dtype=torch.float32), 5, CPU)
    for layer in cache.layers:
        layer.copy_(torch.randn_like(layer))
    before = [layer.clone() for layer in cache.layers]
    CacheMover(cache).copy([3, 1], [0, 4])
    for layer, was in zip(cache.layers, before, strict=True):
        torch.testing.assert_close(layer, was[:, [3, 1, 2, 3, 1]], rtol=0, atol=0)
