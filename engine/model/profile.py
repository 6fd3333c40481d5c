"""The most that a step takes beyond weights and KV: its largest batches, run once on dummy tokens.

    chunk    sequences of full length, as many of their last tokens as one step may compute
    prompts  as many short prompts as may run at once, sharing the step's budget
    decode   one token for every sequence that may run, over contexts as long as a pool can hold

The temporary cache holds only the tokens that a batch writes; all that a sequence reads besides is
block 0, again and again.
"""

import torch
from transformers import PreTrainedModel

from engine.config import SchedulerConfig
from engine.hashing import PrefixHasher
from engine.model.runner import ModelRunner
from engine.out_of_memory import DeviceOutOfMemoryError
from engine.sequence import SamplingParams, Sequence
from engine.sizing import MeasuredDevice, PoolSizeError, format_bytes
from engine.step_plan import ScheduledSequence, StepPlan

Spans = list[tuple[int, int]]
"""Start and count of each row of a batch."""

_SAMPLING = SamplingParams(
    max_tokens=1, temperature=1.0, top_p=0.9, min_p=0.01, logit_bias=((0, 1.0),), logprobs=0
)
"""Sorting every row of logits, changed in a copy, is what takes the most memory."""


def activation_peak(
    model: PreTrainedModel,
    memory: MeasuredDevice,
    scheduler: SchedulerConfig,
    *,
    block_size: int,
    pool_tokens: int,
) -> int:
    """Bytes that the worst batch took beyond what is allocated now; leaves nothing allocated.

    pool_tokens: at least what the pool will hold. Raises PoolSizeError where a batch does not fit.
    """
    peaks = {}
    for name, spans in _batches(scheduler, pool_tokens).items():
        try:
            peaks[name] = _peak(model, memory, spans, block_size)
        except (torch.OutOfMemoryError, DeviceOutOfMemoryError) as error:
            memory.trim()
            raise PoolSizeError(
                f"the device has no room for its largest step ({name}: {len(spans)} sequences, "
                f"{sum(count for _, count in spans)} tokens; {format_bytes(memory.free())} are "
                "free): lower --max-num-batched-tokens, --max-num-seqs or --max-model-len"
            ) from error
    return max(peaks.values())


def _batches(scheduler: SchedulerConfig, pool_tokens: int) -> dict[str, Spans]:
    length, budget = scheduler.max_model_len, scheduler.max_num_batched_tokens
    num_seqs = scheduler.max_num_seqs
    chunks: Spans = []
    while budget and len(chunks) < num_seqs:
        count = min(budget, length)
        chunks.append((length - count, count))
        budget -= count
    prompt = min(length, scheduler.max_num_batched_tokens // num_seqs)
    context = max(1, min(length, pool_tokens // num_seqs))
    return {
        "chunk": chunks,
        "prompts": [(0, prompt)] * num_seqs,
        "decode": [(context - 1, 1)] * num_seqs,
    }


def _peak(model: PreTrainedModel, memory: MeasuredDevice, spans: Spans, block_size: int) -> int:
    rows: list[ScheduledSequence] = []
    num_blocks = 1
    for start, count in spans:
        read = start // block_size
        written = -(-(start + count) // block_size) - read
        table = [0] * read + list(range(num_blocks, num_blocks + written))
        num_blocks += written
        rows.append(ScheduledSequence(_sequence(start + count, table, block_size), start, count))
    runner = ModelRunner(model, num_blocks=num_blocks, block_size=block_size)
    before = memory.allocated()
    memory.reset_peak()
    runner.execute(StepPlan(rows))
    return memory.peak() - before


def _sequence(length: int, table: list[int], block_size: int) -> Sequence:
    return Sequence(
        sequence_id=0,
        request_id=0,
        tokens=[0] * length,
        prompt_length=length,
        sampling=_SAMPLING,
        hasher=PrefixHasher(b"", block_size),
        block_table=table,
    )
