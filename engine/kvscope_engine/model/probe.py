"""A trial run after loading: does paged attention compute what transformers' own does?

Four short sequences go through the paged path whole, in chunks and token by token, and their last
logits are compared with a plain forward pass. Any behaviour that paged attention does not cover (a
different mask, biases, sinks, its own cache) shows here, not in a user's output.
"""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.architecture import expected_windows
from kvscope_engine.model.attention.backend import LayerOptions, StepAttention
from kvscope_engine.model.attention.choice import TORCH, Attention
from kvscope_engine.model.attention.interface import (
    IMPLEMENTATION,
    PagedStep,
    UnsupportedAttentionError,
)
from kvscope_engine.model.errors import CheckpointError, first_line, unsupported
from kvscope_engine.model.forward import forward_of, step_logits
from kvscope_engine.model.kv_cache import KVCache, kv_layout
from kvscope_engine.model.step_batch import StepBatch
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import ScheduledSequence

_BLOCK_SIZE = 4
_LENGTHS = (9, 12, 13, 15)
_TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-3}
_HALF_TOLERANCE = 0.1
"""Relative error of logits; 16-bit rounding alone gives about 0.01, a wrong mask about 1."""

_BROKEN = (TypeError, ValueError, AttributeError, LookupError, RuntimeError)
"""Errors of models that cannot run without a cache of their own or with our attention."""


class _WindowRecorder:
    """Notes which window each layer asks for, in the order the layers run."""

    def __init__(self, attention: StepAttention, windows: list[int | None]) -> None:
        self._attention = attention
        self._windows = windows

    def attend(self, query: Tensor, key: Tensor, value: Tensor, options: LayerOptions) -> Tensor:
        self._windows.append(options.window)
        return self._attention.attend(query, key, value, options)


def probe(model: PreTrainedModel, name: str, attention: Attention = TORCH) -> None:
    """Raises CheckpointError unless `model` runs correctly on paged attention.

    Raises CheckpointError if it does not run correctly without it either.

    About four forward passes of 15 to 49 tokens. Leaves the model as it was.
    """
    layout = kv_layout(model.config, _BLOCK_SIZE, model.dtype)
    sequences = _sequences(model.config.get_text_config(decoder=True).vocab_size)
    cache = KVCache(layout, sum(len(sequence.block_table) for sequence in sequences), model.device)
    windows: list[int | None] = []
    try:
        paged = _paged_logits(model, cache, sequences, windows, attention)
    except torch.OutOfMemoryError:
        raise
    except (UnsupportedAttentionError, *_BROKEN) as error:
        raise unsupported(
            name, f"{model.config.model_type} does not run on paged attention ({first_line(error)})"
        ) from error
    _check_layers(model, cache, name, windows)
    plain = _plain_logits(model, sequences)
    if plain.isnan().any():
        raise CheckpointError(
            name, "its weights give no numbers, on its own attention either", "download them again"
        )
    errors = (paged - plain).norm(dim=-1) / plain.norm(dim=-1).clamp_min(1e-12)
    deviation = float(errors.median())  # rounding may route one token to another expert
    if not deviation <= _TOLERANCES.get(model.dtype, _HALF_TOLERANCE):
        raise unsupported(
            name,
            f"{model.config.model_type} gives other logits on paged attention ({attention.name}) "
            f"than on its own (relative error {deviation:.2g})",
            *([] if attention is TORCH else ["try --attention-backend torch"]),
        )


def _sequences(vocab_size: int) -> list[Sequence]:
    """Four sequences with scattered block tables that together use every block once."""
    num_blocks = [-(-length // _BLOCK_SIZE) for length in _LENGTHS]
    sequences = []
    free = list(range(sum(num_blocks)))[::-1]
    for number, (length, blocks) in enumerate(zip(_LENGTHS, num_blocks, strict=True)):
        tokens = [(37 * (position + 31 * number) + 11) % vocab_size for position in range(length)]
        sequences.append(
            Sequence(
                sequence_id=number,
                request_id=number,
                tokens=tokens,
                prompt_length=length,
                sampling=SamplingParams(max_tokens=1),
                hasher=PrefixHasher(b"", _BLOCK_SIZE),
                block_table=[free.pop(0 if block % 2 else -1) for block in range(blocks)],
            )
        )
    return sequences


def _paged_logits(
    model: PreTrainedModel,
    cache: KVCache,
    sequences: list[Sequence],
    windows: list[int | None],
    attention: Attention,
) -> Tensor:
    """(4, V) float32: last logits after a whole prompt, a chunk, and single tokens."""
    lengths = [len(sequence.tokens) for sequence in sequences]
    forward = forward_of(model, kernels=attention.kernels)
    # [0, length // 2) whole, [length // 2, length - 1) as a chunk, [length - 1, length) alone.
    bounds = [(0, length // 2, length - 1, length) for length in lengths]
    for step in range(3):
        rows = [
            ScheduledSequence(sequence, bound[step], bound[step + 1] - bound[step])
            for sequence, bound in zip(sequences, bounds, strict=True)
        ]
        windows.clear()
        batch = StepBatch(rows, cache.layout, cache.device)
        recorder = _WindowRecorder(attention.prepare(batch, cache), windows)
        logits = step_logits(forward, PagedStep(cache, batch, recorder))
    return logits


def _check_layers(
    model: PreTrainedModel, cache: KVCache, name: str, windows: list[int | None]
) -> None:
    for number, layer in enumerate(cache.layers):
        if not layer.any():
            raise unsupported(
                name, f"layer {number} of {model.config.model_type} does not use paged attention"
            )
    for number, wanted in enumerate(expected_windows(model.config)):
        if wanted is not None and windows[number] != wanted:
            raise unsupported(
                name,
                f"layer {number} of {model.config.model_type} has a sliding window of {wanted} "
                f"but passes {windows[number]} to attention",
            )


@torch.inference_mode()
def _plain_logits(model: PreTrainedModel, sequences: list[Sequence]) -> Tensor:
    """(4, V) float32 of the model's own attention, one sequence at a time."""
    model.set_attn_implementation("eager")
    try:
        return torch.stack(
            [
                model(
                    input_ids=torch.tensor([sequence.tokens], device=model.device), use_cache=False
                ).logits[0, -1]
                for sequence in sequences
            ]
        ).float()
    finally:
        model.set_attn_implementation(IMPLEMENTATION)
