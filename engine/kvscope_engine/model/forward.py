"""A step's logits: by transformers' own layers, or by a faster path if the model allows it."""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvscope_engine.model.attention.interface import PagedStep, paged_step
from kvscope_engine.model.plain_decoder import plain_decoder

Forward = Callable[[PagedStep], Tensor]
"""Writes the step's K and V. Returns (S + P, V), a row for each of the batch's logit positions."""


def forward_of(model: PreTrainedModel, *, kernels: bool = False) -> Forward:
    """The fastest path through a model. May move weights in memory; their values stay.

    kernels: whether Triton runs here.
    """
    return plain_decoder(model, kernels=kernels) or _through_transformers(model)


@torch.inference_mode()
def step_logits(forward: Forward, step: PagedStep) -> Tensor:
    """(S + P, V) float32, a row for each of the batch's logit positions. Writes the cache."""
    for block in step.batch.opened:
        step.cache.clear(block)
    return forward(step).float()


def _through_transformers(model: PreTrainedModel) -> Forward:
    def forward(step: PagedStep) -> Tensor:
        batch = step.batch
        with paged_step(step):
            output = model(
                input_ids=batch.token_ids[None],
                position_ids=batch.positions[None],
                use_cache=False,
                logits_to_keep=batch.logit_positions,
            )
        logits: Tensor = output.logits[0]
        return logits

    return forward
