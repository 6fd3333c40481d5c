"""A trial run after loading: does paged attention compute what transformers' own does?

Four short sequences go through the paged path whole, in chunks and token by token, and their last
logits are compared with a plain forward pass. Whatever a model does that paged attention does not
know (another mask, biases, sinks, its own cache) shows here, not in a user's output.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.hashing import PrefixHasher
from engine.model.architecture import expected_windows
from engine.model.attention import IMPLEMENTATION, PagedStep, UnsupportedAttentionError
from engine.model.errors import UnsupportedArchitectureError, first_line
from engine.model.kv_cache import KVCache, kv_layout
from engine.model.metadata import DecodeGroup, StepBatch
from engine.model.runner import step_logits
from engine.request import Request, SamplingParams, ScheduledSequence

_BLOCK_SIZE = 4
_LENGTHS = (9, 12, 13, 15)
_TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-3}
_HALF_TOLERANCE = 0.1
"""Relative error of logits; 16-bit rounding alone gives about 0.01, a wrong mask about 1."""

_BROKEN = (TypeError, ValueError, AttributeError, LookupError, RuntimeError)
"""What a model raises that does not expect the step's keyword, or no cache of its own."""


class _RecordingBatch(StepBatch):
    """Notes which window each layer asks for, in the order the layers run."""

    def __init__(
        self, rows: Sequence[ScheduledSequence], cache: KVCache, windows: list[int | None]
    ) -> None:
        super().__init__(rows, cache.layout, cache.device)
        self._windows = windows

    def decode_groups(self, window: int | None) -> list[DecodeGroup]:
        self._windows.append(window)
        return super().decode_groups(window)


def probe(model: PreTrainedModel, name: str) -> None:
    """Raises UnsupportedArchitectureError unless `model` runs correctly on paged attention.

    About four forward passes of 15 to 49 tokens. Leaves the model as it was.
    """
    layout = kv_layout(model.config, _BLOCK_SIZE, model.dtype)
    requests = _requests(model.config.get_text_config(decoder=True).vocab_size)
    cache = KVCache(layout, sum(len(request.block_table) for request in requests), model.device)
    windows: list[int | None] = []
    try:
        paged = _paged_logits(model, cache, requests, windows)
    except torch.OutOfMemoryError:
        raise
    except (UnsupportedAttentionError, *_BROKEN) as error:
        raise UnsupportedArchitectureError(
            name, f"{model.config.model_type} does not run on paged attention ({first_line(error)})"
        ) from error
    _check_layers(model, cache, name, windows)
    plain = _plain_logits(model, requests)
    errors = (paged - plain).norm(dim=-1) / plain.norm(dim=-1).clamp_min(1e-12)
    deviation = float(errors.median())  # rounding may route one token to another expert
    if not deviation <= _TOLERANCES.get(model.dtype, _HALF_TOLERANCE):
        raise UnsupportedArchitectureError(
            name,
            f"{model.config.model_type} gives other logits on paged attention than on its own "
            f"(relative error {deviation:.2g})",
        )


def _requests(vocab_size: int) -> list[Request]:
    """Scattered block tables that together use every block once."""
    num_blocks = [-(-length // _BLOCK_SIZE) for length in _LENGTHS]
    requests = []
    free = list(range(sum(num_blocks)))[::-1]
    for number, (length, blocks) in enumerate(zip(_LENGTHS, num_blocks, strict=True)):
        tokens = [(37 * (position + 31 * number) + 11) % vocab_size for position in range(length)]
        requests.append(
            Request(
                request_id=number,
                tokens=tokens,
                prompt_length=length,
                sampling=SamplingParams(max_tokens=1),
                hasher=PrefixHasher(b"", _BLOCK_SIZE),
                arrival_ns=0,
                block_table=[free.pop(0 if block % 2 else -1) for block in range(blocks)],
            )
        )
    return requests


def _paged_logits(
    model: PreTrainedModel, cache: KVCache, requests: list[Request], windows: list[int | None]
) -> Tensor:
    """(4, V) float32: last logits after a whole prompt, a chunk, and single tokens."""
    lengths = [len(request.tokens) for request in requests]
    # [0, length // 2) whole, [length // 2, length - 1) as a chunk, [length - 1, length) alone.
    bounds = [(0, length // 2, length - 1, length) for length in lengths]
    for step in range(3):
        rows = [
            ScheduledSequence(request, bound[step], bound[step + 1] - bound[step])
            for request, bound in zip(requests, bounds, strict=True)
        ]
        windows.clear()
        logits = step_logits(model, PagedStep(cache, _RecordingBatch(rows, cache, windows)))
    return logits


def _check_layers(
    model: PreTrainedModel, cache: KVCache, name: str, windows: list[int | None]
) -> None:
    for number, layer in enumerate(cache.layers):
        if not layer.any():
            raise UnsupportedArchitectureError(
                name, f"layer {number} of {model.config.model_type} does not use paged attention"
            )
    for number, wanted in enumerate(expected_windows(model.config)):
        if wanted is not None and windows[number] != wanted:
            raise UnsupportedArchitectureError(
                name,
                f"layer {number} of {model.config.model_type} has a sliding window of {wanted} "
                f"but passes {windows[number]} to attention",
            )


@torch.inference_mode()
def _plain_logits(model: PreTrainedModel, requests: list[Request]) -> Tensor:
    """(4, V) float32 of the model's own attention, one sequence at a time."""
    model.set_attn_implementation("eager")
    try:
        return torch.stack(
            [
                model(
                    input_ids=torch.tensor([request.tokens], device=model.device), use_cache=False
                ).logits[0, -1]
                for request in requests
            ]
        ).float()
    finally:
        model.set_attn_implementation(IMPLEMENTATION)
