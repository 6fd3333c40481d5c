"""Weights counted from config.json are those of the modules that transformers builds from it, but
for biases and the like: less than a hundredth."""

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.models.auto import AutoModelForCausalLM

from kvscope.plan.shape import shape_from_config
from kvscope.plan.storage import plain_storage
from kvscope.plan.weights import Weights, bulk
from kvscope_engine.sizing import Dtype
from kvscope_engine.sizing.config_json import decoder_config
from tests.sizing.configs import (
    DEEPSEEK_V2_LITE,
    LLAMA_3_8B,
    MIXTRAL_8X7B,
    QWEN3_30B_A3B,
    REAL,
)
from tests.sizing.published import PUBLISHED

SMALL = 0.005
"""The share of biases, convolutions and norms beyond two a layer."""


def counted(config: dict[str, Any]) -> Weights:
    weights = shape_from_config(config, "test").weights
    assert weights is not None
    return weights


def built(config: PreTrainedConfig) -> int:
    """Weights of the real modules, without their memory; tied ones once."""
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def transformers_config(config: dict[str, Any]) -> PreTrainedConfig:
    unread = ("torch_dtype", "quantization_config")
    inner = {k: v for k, v in decoder_config(config).items() if k not in unread}
    model_type = str(inner.pop("model_type"))
    if model_type == "minimax_text_01":  # by its later name
        model_type = "minimax"
        names = ("linear_attention", "full_attention")
        inner["layer_types"] = [names[number] for number in inner.pop("attn_type_list")]
    config_class: Any = CONFIG_MAPPING[model_type]
    made: PreTrainedConfig = config_class(**inner)
    return made


@pytest.mark.parametrize("name", REAL)
def test_a_real_checkpoint_is_counted(name: str) -> None:
    config = REAL[name]
    assert counted(config).total == pytest.approx(built(transformers_config(config)), rel=SMALL)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_checkpoint_has_its_size(name: str) -> None:
    """Its published numbers where we know them, else what transformers builds of its config."""
    checkpoint = PUBLISHED[name]
    shape = shape_from_config(checkpoint.config, name)
    assert shape.weights is not None
    if checkpoint.weights is None and checkpoint.nbytes is None:
        size = built(transformers_config(checkpoint.config))
        assert shape.weights.total == pytest.approx(size, rel=SMALL)
    if checkpoint.weights is not None:
        assert shape.weights.total == pytest.approx(checkpoint.weights, rel=SMALL)
    if checkpoint.nbytes is not None:
        stored = shape.storage or plain_storage(Dtype.BF16)
        assert stored.nbytes(shape.weights) == pytest.approx(checkpoint.nbytes, rel=SMALL)


def test_known_sizes() -> None:
    assert counted(LLAMA_3_8B).total == 8_030_261_248
    assert counted(MIXTRAL_8X7B).total == 46_702_792_704
    assert counted(MIXTRAL_8X7B).active == 12_879_925_248
    assert round(counted(QWEN3_30B_A3B).total / 1e9, 1) == 30.5
    assert round(counted(QWEN3_30B_A3B).active / 1e9, 1) == 3.4  # 3.0 without the embedding
    assert round(counted(DEEPSEEK_V2_LITE).total / 1e9, 1) == 15.7


def test_a_type_of_which_only_the_layers_are_known_has_no_weights() -> None:
    shape = shape_from_config({**LLAMA_3_8B, "model_type": "exaone_moe"}, "test")
    assert shape.weights is None
    assert len(shape.layers) == 32
    assert any("--params" in note for note in shape.notes)


def test_only_matrices_of_layers_shrink_below_16_bits() -> None:
    whole = counted(LLAMA_3_8B)
    embeddings = 2 * 128_256 * 4096
    norms = 65 * 4096
    matrices = whole.total - embeddings - norms
    rest = 2 * (embeddings + norms)
    assert plain_storage(Dtype.FP32).nbytes(whole) == 4 * whole.total
    assert plain_storage(Dtype.BF16).nbytes(whole) == 2 * whole.total
    assert plain_storage(Dtype.FP8).nbytes(whole) == matrices + rest
    assert (
        plain_storage(Dtype.INT4).nbytes(whole) == matrices // 2 + matrices // 128 * 20 // 8 + rest
    )


def test_a_bare_number_of_weights_is_all_matrices() -> None:
    assert bulk(1290, 4).total == 1290
    assert plain_storage(Dtype.FP8).nbytes(bulk(1290, 4)) == 1290


def test_int4_matches_a_published_checkpoint() -> None:
    """Llama-2-70B in AWQ, group size 128, is published as 36.61 GB."""
    config = {
        **LLAMA_3_8B,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "vocab_size": 32000,
    }
    assert plain_storage(Dtype.INT4).nbytes(counted(config)) / 1e9 == pytest.approx(36.61, abs=0.05)
