"""Layout arithmetic, and writing and gathering by slot."""

import pytest
import torch
from transformers import Gemma4TextConfig, GPTBigCodeConfig, LlamaConfig, PreTrainedConfig

from kvscope_engine.model.errors import CheckpointError
from kvscope_engine.model.kv_cache import FP8, KVCache, KVLayout, LayerShape, kv_layout

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
    with pytest.raises(CheckpointError, match="does not say how many"):
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


def test_fp8_halves_the_bytes_of_a_16_bit_model() -> None:
    config = LlamaConfig(num_hidden_layers=2, num_attention_heads=4, hidden_size=64)
    plain, fp8 = (kv_layout(config, 16, torch.bfloat16, stored) for stored in (None, FP8))
    assert fp8.bytes_per_block * 2 == plain.bytes_per_block
    assert KVCache(fp8, 3, torch.device("cpu")).layers[0].nbytes * 2 == 3 * fp8.bytes_per_block
    assert (plain.compute_dtype, fp8.compute_dtype) == (torch.bfloat16, torch.bfloat16)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_fp8_is_read_back_as_the_nearest_value_it_has(scale: float) -> None:
    layout = KVLayout(
        layers=(LayerShape(1, 6),),
        block_size=2,
        dtype=FP8,
        computed=torch.float32,
        kv_scale=scale,
    )
    cache = KVCache(layout, 2, torch.device("cpu"))
    written = torch.tensor([1.0, 1.06, 1.07, -0.001, 1e9, float("-inf")])
    cache.write(0, torch.tensor([3]), written.view(1, 1, 6), written.view(1, 1, 6))
    keys, values = cache.gather(0, torch.tensor([1]))
    assert keys.dtype == torch.float32
    # Steps of 1/8 between 1 and 2, and of 2^-9 next to 0; what is too large becomes the largest.
    small = {1.0: -0.001953125, 0.5: -0.0009765625}[scale]
    expected = torch.tensor([1.0, 1.0, 1.125, small, 448 * scale, -448 * scale])
    torch.testing.assert_close(keys[0, 1, 0], expected, atol=0, rtol=0)
    torch.testing.assert_close(values[0, 1, 0], expected, atol=0, rtol=0)
    cache.clear(1)
    assert not cache.gather(0, torch.tensor([1]))[0].any()


@pytest.mark.parametrize("dtype", [torch.float32, FP8])
def test_a_copy_of_a_block_is_one_in_every_layer_and_leaves_the_others_alone(
    dtype: torch.dtype,
) -> None:
    layers = (LayerShape(2, 3), LayerShape(1, 5), LayerShape(2, 3))  # two stacks
    cache = KVCache(KVLayout(layers=layers, block_size=4, dtype=dtype), 5, CPU)
    for layer in cache.layers:
        layer.copy_(torch.randn(layer.shape))
    before = [layer.clone() for layer in cache.layers]
    cache.copy(3, 0)
    cache.copy(1, 4)
    for layer, was in zip(cache.layers, before, strict=True):
        assert torch.equal(layer.float(), was.float()[:, [3, 1, 2, 3, 1]])
