"""Weights counted from config.json are those of the modules that transformers builds from it."""

import json
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.models.auto import AutoModelForCausalLM

from engine.sizing import Dtype
from engine.sizing.config_json import decoder_config
from engine.sizing.families import FAMILIES
from kvscope.plan.shape import shape_from_config
from kvscope.plan.weights import Parameters
from tests.sizing.configs import (
    DEEPSEEK_V2_LITE,
    LLAMA_3_8B,
    MIXTRAL_8X7B,
    QWEN3_30B_A3B,
    REAL,
    SMALL,
)


def counted(config: dict[str, Any]) -> Parameters:
    parameters = shape_from_config(config, "test").parameters
    assert parameters is not None
    return parameters


def built(config: PreTrainedConfig) -> int:
    """Weights of the real modules, without their memory; tied ones once."""
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def transformers_config(config: dict[str, Any]) -> PreTrainedConfig:
    inner = {k: v for k, v in decoder_config(config).items() if k != "torch_dtype"}
    config_class: Any = CONFIG_MAPPING[str(inner.pop("model_type"))]
    made: PreTrainedConfig = config_class(**inner)
    return made


@pytest.mark.parametrize("name", REAL)
def test_a_real_checkpoint_is_counted_exactly(name: str) -> None:
    config = REAL[name]
    assert counted(config).total == built(transformers_config(config))


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
def test_every_family_is_counted_exactly(model_type: str, tied: bool) -> None:
    known = CONFIG_MAPPING[model_type]().to_dict()
    changes = {field: value for field, value in SMALL.items() if field in known}
    config = CONFIG_MAPPING[model_type](**changes, tie_word_embeddings=tied)
    whole = json.loads(config.to_json_string(use_diff=False))
    assert counted(whole).total == built(config)


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "granite", "deepseek_v3", "gemma2"])
def test_attention_biases_are_counted(model_type: str) -> None:
    known = CONFIG_MAPPING[model_type]().to_dict()
    changes = {field: value for field, value in SMALL.items() if field in known}
    config = CONFIG_MAPPING[model_type](**changes, attention_bias=True)
    assert counted(json.loads(config.to_json_string(use_diff=False))).total == built(config)


def test_known_sizes() -> None:
    assert counted(LLAMA_3_8B).total == 8_030_261_248
    assert counted(MIXTRAL_8X7B).total == 46_702_792_704
    assert counted(MIXTRAL_8X7B).active == 12_879_925_248
    assert round(counted(QWEN3_30B_A3B).total / 1e9, 1) == 30.5
    assert round(counted(QWEN3_30B_A3B).active / 1e9, 1) == 3.4  # 3.0 without the embedding
    assert round(counted(DEEPSEEK_V2_LITE).total / 1e9, 1) == 15.7


def test_an_unknown_type_has_a_cache_but_no_weights() -> None:
    shape = shape_from_config({**LLAMA_3_8B, "model_type": "future"}, "test")
    assert shape.parameters is None
    assert len(shape.layers) == 32
    assert any("--params" in note for note in shape.notes)


def test_only_matrices_of_layers_shrink_below_16_bits() -> None:
    parameters = Parameters(matrices=1280, rest=100)
    assert parameters.nbytes(Dtype.FP32) == 4 * 1380
    assert parameters.nbytes(Dtype.BF16) == parameters.nbytes(Dtype.FP16) == 2 * 1380
    assert parameters.nbytes(Dtype.FP8) == parameters.nbytes(Dtype.INT8) == 1280 + 200
    assert parameters.nbytes(Dtype.INT4) == 640 + 25 + 200  # ten groups of 128: 20 bits each


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
    assert counted(config).nbytes(Dtype.INT4) / 1e9 == pytest.approx(36.61, abs=0.05)
