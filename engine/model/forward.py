"""One forward pass over paged attention: from a batch to its rows' logits."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.model.attention.interface import PagedStep, paged_step


@torch.inference_mode()
def step_logits(model: PreTrainedModel, step: PagedStep) -> Tensor:
    """(S, V) float32, one row per sampling row of the batch. Writes the cache."""
    batch = step.batch
    for block in batch.opened:
        step.cache.clear(block)
    with paged_step(step):
        output = model(
            input_ids=batch.token_ids[None],
            position_ids=batch.positions[None],
            use_cache=False,
            logits_to_keep=batch.sample_positions,
        )
    logits: Tensor = output.logits[0]
    return logits.float()
