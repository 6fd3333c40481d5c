"""Bytes of quantized checkpoints, by the quantization_config in their config.json."""

import re
from typing import Any

import pytest

from kvscope.plan.modules import modules_of
from kvscope.plan.shape import ModelShape, shape_from_config
from kvscope_engine.sizing import ConfigError
from tests.sizing.configs import AWQ, DEEPSEEK_V3, LLAMA_3_8B, MXFP4, QWEN3_30B_A3B

EMBEDDINGS = 2 * 128_256 * 4096
NORMS = 65 * 4096
MATRICES = 8_030_261_248 - EMBEDDINGS - NORMS
ROWS = 32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)
"""Outputs of all matrices."""
COLUMNS = 32 * (4 * 4096 + 2 * 4096 + 14336)
"""Inputs of all matrices."""
REST = 2 * (EMBEDDINGS + NORMS)


def quantized(config: dict[str, Any], **method: Any) -> ModelShape:
    return shape_from_config({**config, "quantization_config": method}, "test")


def nbytes(shape: ModelShape) -> int:
    assert shape.storage is not None
    assert shape.weights is not None
    return shape.storage.nbytes(shape.weights)


def weights(**settings: Any) -> dict[str, Any]:
    return {"config_groups": {"group_0": {"weights": settings}}, "ignore": ["lm_head"]}


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ({"quant_method": "fp8"}, MATRICES + 32 * 7 * 4),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            MATRICES + MATRICES // 128**2 * 4,
        ),
        (AWQ, MATRICES // 2 + MATRICES // 128 * 20 // 8),
        ({**AWQ, "zero_point": False}, MATRICES // 2 + MATRICES // 128 * 16 // 8),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128},
            MATRICES // 2 + MATRICES // 128 * 20 // 8 + 4 * COLUMNS,
        ),
        (
            {"quant_method": "gptq", "bits": 8, "group_size": -1},
            MATRICES + ROWS * 3 + 4 * COLUMNS,
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            MATRICES // 2 + MATRICES // 64 * 4,
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, MATRICES + 4 * ROWS),
        (
            {
                "quant_method": "compressed-tensors",
                **weights(num_bits=8, type="float", strategy="channel"),
            },
            MATRICES + 2 * ROWS,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                **weights(num_bits=4, type="int", strategy="group", group_size=128),
            },
            MATRICES // 2 + MATRICES // 128 * 2,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "nvfp4-pack-quantized",
                **weights(num_bits=4, type="float", strategy="tensor_group", group_size=16),
            },
            MATRICES // 2 + MATRICES // 16 + 32 * 7 * 4,
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, MATRICES + 32 * 7 * 4),
    ],
    ids=lambda value: str(value.get("quant_method")) if isinstance(value, dict) else "",
)
def test_matrices_of_the_layers_take_the_bytes_of_their_method(
    method: dict[str, Any], expected: int
) -> None:
    assert nbytes(quantized(LLAMA_3_8B, **method)) == expected + REST


def test_mxfp4_is_for_experts_alone() -> None:
    shape = quantized(QWEN3_30B_A3B, **MXFP4)
    assert shape.weights is not None
    experts = 48 * 128 * 3 * 768 * 2048
    assert nbytes(shape) == experts * 17 // 32 + 2 * (shape.weights.total - experts)


def test_modules_that_are_not_converted_stay_as_they_were() -> None:
    converted = nbytes(quantized(LLAMA_3_8B, quant_method="fp8"))
    named = ["model.layers.3.mlp.down_proj", "lm_head"]
    kept = nbytes(quantized(LLAMA_3_8B, quant_method="fp8", modules_to_not_convert=named))
    assert kept - converted == 4096 * 14336 - 4


@pytest.mark.parametrize(
    ("listed", "module", "layer", "have"),
    [
        (["lm_head"], "lm_head", None, True),
        (["self_attn"], "self_attn.q_proj", 0, True),
        (["model.layers.1.self_attn"], "self_attn.q_proj", 1, True),
        (["model.layers.1.self_attn"], "self_attn.q_proj", 11, False),
        (["model.language_model.layers.2.mlp.gate_proj"], "mlp.gate_proj", 2, True),
        (["gate"], "mlp.gate_proj", 0, False),
        (["visual.blocks.0.attn"], "self_attn.q_proj", 0, False),
        (["re:.*self_attn.*"], "self_attn.q_proj", 5, True),
        ([r"re:.*\.mlp\.gate$"], "mlp.gate_proj", 5, False),
        ([r"re:model\.layers\.(0|1)\..*"], "mlp.up_proj", 1, True),
    ],
)
def test_a_list_names_modules_and_parts_of_names(
    listed: list[str], module: str, layer: int | None, have: bool
) -> None:
    assert modules_of(listed).have(module, layer) is have


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:.*.*.*.*.*x", "re:(", "re:" + "x" * 400])
def test_a_pattern_that_could_take_years_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="pattern"):
        modules_of([pattern])


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"quant_method": "future"}, "quantization method 'future' is not known"),
        ({}, "quantization method '' is not known"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "two positive integers"),
        ({"quant_method": "fp8", "weight_block_size": ["x", 1]}, "two positive integers"),
        ({"quant_method": "gptq"}, "no positive bits"),
        ({"quant_method": "bitsandbytes"}, "neither load_in_4bit nor load_in_8bit"),
        ({"quant_method": "compressed-tensors"}, "no config_groups"),
        (
            {"quant_method": "compressed-tensors", **weights(num_bits=4, strategy="spiral")},
            "strategy 'spiral'",
        ),
        ({"quant_method": "modelopt", "quant_algo": "W1A1"}, "quant_algo 'W1A1'"),
    ],
)
def test_a_method_that_is_not_understood_is_refused(method: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        quantized(LLAMA_3_8B, **method)


def test_deepseek_v3_takes_what_its_card_says() -> None:
    """671B weights, of which all but embeddings, head, norms and routers take one byte."""
    shape = shape_from_config(DEEPSEEK_V3, "test")
    assert shape.weights is not None
    assert round(shape.weights.total / 1e9) == 671
    assert round(shape.weights.active / 1e9, 1) == 37.6  # 37B by its card; the embedding has 0.9
    assert nbytes(shape) / 2**30 == pytest.approx(626.9, abs=0.1)
