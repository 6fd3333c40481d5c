"""Checks a model's configuration against the size of its files and the device's free memory.

Decided before anything is allocated: an extra digit in config.json would otherwise take all memory
of the machine.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from kvscope_engine.model.attention.interface import IMPLEMENTATION
from kvscope_engine.model.device_memory import memory_of
from kvscope_engine.model.errors import CheckpointError, ModelTooLargeError, unsupported
from kvscope_engine.model.library_errors import reported
from kvscope_engine.model.safetensors_file import StoredTensor
from kvscope_engine.sizing.units import format_bytes

BELONG = "check that config.json and the weights belong together"
MAX_COUNT = 2**16
"""Layers, experts or labels; transformers makes one object for each when it reads the number."""

_COUNTED = re.compile(r"layer|expert|label|depth|stage")
_SMALLEST_BITS = 4
"""Bits of the smallest quantized weight."""
_MAX_SHARING = 2
"""Maximum weights per stored one, since some are stored once and used twice."""


def check_counts(model: str, config: Mapping[str, object]) -> None:
    """config: config.json. Raises CheckpointError for a number of parts that no model has."""
    for key, number in _numbers(config):
        if number > MAX_COUNT and _COUNTED.search(key):
            raise CheckpointError(model, f"config.json asks for too many {key}", BELONG)


def check_room(
    model: str,
    config: PreTrainedConfig,
    tensors: Mapping[str, StoredTensor],
    device: torch.device,
    dtype: torch.dtype | None,
) -> None:
    """Compare the model that `config` describes with `tensors` and with the device's free memory.

    dtype: that of the loaded weights; None: as stored. Builds the model without allocating it.

    Raises CheckpointError or ModelTooLargeError.
    """
    layers = getattr(config.get_text_config(decoder=True), "num_hidden_layers", 0)
    if not isinstance(layers, int) or layers > len(tensors):
        raise CheckpointError(
            model, f"config.json asks for {layers} layers, of {len(tensors)} tensors", BELONG
        )
    skeleton = _skeleton(model, config)
    quantized = getattr(config, "quantization_config", None) is not None
    if not quantized:
        _check_types(model, skeleton, tensors)
    _check_sum(model, skeleton, tensors, quantized)
    needed = _least_bytes(skeleton, tensors, quantized, dtype)
    free = memory_of(device).free()
    if needed > free:
        raise ModelTooLargeError(
            model,
            f"its weights take at least {format_bytes(needed)}, but {format_bytes(free)} are free",
            "choose a smaller model or free memory",
        )


def mismatch(
    model: str, config: PreTrainedConfig, tensors: Mapping[str, StoredTensor]
) -> CheckpointError | None:
    """The first tensor whose shape differs from `config`; None: the cause is something else.

    Only for use after loading has failed: transformers transposes some tensors while it loads.
    """
    for name, parameter in _skeleton(model, config).named_parameters():
        stored = tensors.get(name)
        if stored is not None and stored.shape != tuple(parameter.shape):
            return CheckpointError(
                model,
                f"{name} has the shape {list(stored.shape)}, by config.json it has "
                f"{list(parameter.shape)}",
                BELONG,
            )
    return None


def _numbers(value: object, key: str = "") -> Iterator[tuple[str, int]]:
    """Every integer in the configuration, with the name it has there."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _numbers(inner, str(name))
    elif isinstance(value, int):
        yield key, value


def _skeleton(model: str, config: PreTrainedConfig) -> PreTrainedModel:
    """The model on the meta device: shapes without memory."""
    make: Any = AutoModelForCausalLM  # untyped
    with (
        reported(model, "transformers cannot build what config.json describes", BELONG),
        torch.device("meta"),
    ):
        try:
            skeleton = make.from_config(
                copy.deepcopy(config), attn_implementation=IMPLEMENTATION, trust_remote_code=False
            )
        except Exception as error:
            if IMPLEMENTATION in str(error):  # old model code with a fixed list of attentions
                raise unsupported(
                    model, "its layers take no other attention implementation"
                ) from error
            raise
    assert isinstance(skeleton, PreTrainedModel)
    return skeleton


def _check_types(
    model: str, skeleton: PreTrainedModel, tensors: Mapping[str, StoredTensor]
) -> None:
    """Integers instead of weights would be converted, and garble the output."""
    weights = {name for name, _ in skeleton.named_parameters()}
    prefix = skeleton.base_model_prefix
    for name, tensor in tensors.items():
        is_weight = name.endswith(".weight") or name in weights or f"{prefix}.{name}" in weights
        if is_weight and not tensor.floating:
            raise CheckpointError(
                model, f"{name} is stored as {tensor.dtype}, which is not a type of weights", BELONG
            )


def _check_sum(
    model: str, skeleton: nn.Module, tensors: Mapping[str, StoredTensor], quantized: bool
) -> None:
    """Loading would allocate everything before it finds that the files hold less."""
    if quantized:
        held = sum(t.elements * t.bits for t in tensors.values()) // _SMALLEST_BITS
    else:
        held = sum(tensor.elements for tensor in tensors.values())
    wanted = sum(parameter.numel() for parameter in skeleton.parameters())
    if wanted > _MAX_SHARING * held:
        raise CheckpointError(
            model, f"config.json asks for {wanted:,} weights, the files hold {held:,}", BELONG
        )


def _least_bytes(
    skeleton: nn.Module,
    tensors: Mapping[str, StoredTensor],
    quantized: bool,
    dtype: torch.dtype | None,
) -> int:
    """A lower bound, so that no model that would fit is refused."""
    bits = [tensor.bits for tensor in tensors.values() if tensor.floating]
    if quantized or not bits:
        smallest = _SMALLEST_BITS
    elif dtype is None:
        smallest = min(bits)
    else:
        smallest = dtype.itemsize * 8
    parameters = sum(parameter.numel() for parameter in skeleton.parameters())
    buffers = sum(buffer.numel() * buffer.itemsize for buffer in skeleton.buffers())
    return parameters * smallest // 8 + buffers
