"""Peak memory of a step beyond weights and KV: its largest batches, run once on dummy tokens.

    chunk    sequences of full length, as many of their last tokens as one step may compute
    prompts  as many short prompts as may run at once, sharing the step's budget
    decode   one token for every sequence that may run, over contexts as long as a pool can hold

The temporary cache holds only the tokens that a batch writes; everything else that a sequence reads
is block 0, again and again.
"""

from collections.abc import Callable
from functools import partial

import torch
from transformers import PreTrainedModel

from kvscope_engine.config import SchedulerConfig
from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.execution import Execution
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.out_of_memory import DeviceOutOfMemoryError
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.sizing import MeasuredDevice, PoolSizeError, format_bytes
from kvscope_engine.step_plan import ScheduledSequence, StepPlan

Spans = list[tuple[int, int]]
"""Start and count of each row of a batch."""

_SAMPLING = SamplingParams(
    max_tokens=1, temperature=1.0, top_p=0.9, min_p=0.01, logit_bias=((0, 1.0),), logprobs=0
)
"""Rows that are changed, sorted and reported take the most memory, a few rows at a time."""


def activation_peak(
    model: PreTrainedModel,
    memory: MeasuredDevice,
    scheduler: SchedulerConfig,
    *,
    block_size: int,
    pool_tokens: int,
    execution: Execution,
) -> int:
    """The largest of `step_peaks`, with the same arguments."""
    peaks = step_peaks(
        model,
        memory,
        scheduler,
        block_size=block_size,
        pool_tokens=pool_tokens,
        execution=execution,
    )
    return max(peaks.values())


def step_peaks(
    model: PreTrainedModel,
    memory: MeasuredDevice,
    scheduler: SchedulerConfig,
    *,
    block_size: int,
    pool_tokens: int,
    execution: Execution,
) -> dict[str, int]:
    """Bytes that each batch took beyond what is allocated now; leaves nothing allocated.

    pool_tokens: at least the tokens that the pool will hold. execution: as the engine will run,
    without its steps of fixed size. Raises PoolSizeError if a batch does not fit.
    """
    peaks = {}
    runner = partial(ModelRunner, model, block_size=block_size, execution=execution)
    for name, spans in _batches(scheduler, pool_tokens).items():
        try:
            peaks[name] = _peak(runner, memory, spans, block_size)
        except (torch.OutOfMemoryError, DeviceOutOfMemoryError) as error:
            memory.trim()
            raise PoolSizeError(
                f"the device has no room for its largest step ({name}: {len(spans)} sequences, "
                f"{sum(count for _, count in spans)} tokens; {format_bytes(memory.free())} are "
                "free): lower --max-num-batched-tokens, --max-num-seqs or --max-model-len"
            ) from error
    return peaks


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


def graph_bytes(
    model: PreTrainedModel,
    memory: MeasuredDevice,
    execution: Execution,
    *,
    block_size: int,
) -> int | None:
    """Bytes that the CUDA graphs of decode steps take on the device; leaves nothing allocated.

    They are captured over a pool of one block, since its size does not matter. None: they cannot be
    captured.
    """
    memory.trim()
    before = memory.free()
    runner = ModelRunner(model, num_blocks=1, block_size=block_size, execution=execution)
    captured = runner.capture_graphs()
    memory.trim()
    taken = before - memory.free()
    del runner
    memory.trim()
    return max(0, taken) if captured else None


def _peak(
    make_runner: Callable[..., ModelRunner],
    memory: MeasuredDevice,
    spans: Spans,
    block_size: int,
) -> int:
    rows: list[ScheduledSequence] = []
    num_blocks = 1
    for start, count in spans:
        read = start // block_size
        written = -(-(start + count) // block_size) - read
        table = [0] * read + list(range(num_blocks, num_blocks + written))
        num_blocks += written
        rows.append(ScheduledSequence(_sequence(start + count, table, block_size), start, count))
    runner = make_runner(num_blocks=num_blocks)
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
