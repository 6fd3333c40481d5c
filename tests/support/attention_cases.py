"""A step of paged attention on random rows, held against attention written from its definition."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.model.attention.backend import AttentionBackend
from kvscope_engine.model.attention.interface import PagedStep, paged_attention, paged_step
from kvscope_engine.model.kv_cache import FP8, KVCache, KVLayout, LayerShape
from kvscope_engine.model.step_batch import StepBatch
from kvscope_engine.request import SamplingParams, Sequence
from kvscope_engine.step_plan import ScheduledSequence

SCALING = 0.3
TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""For outputs of about 1: a few units in the last place of the type."""


class Layer(nn.Module):
    """The attributes of a layer that paged attention needs."""

    def __init__(self, layer_idx: int | None = 0) -> None:
        super().__init__()
        self.layer_idx = layer_idx


@dataclass(frozen=True)
class Case:
    block_size: int
    num_kv_heads: int
    group: int
    head_dim: int
    window: int | None
    softcap: float | None
    rows: tuple[tuple[int, int], ...]
    """(context before the step, tokens in the step) of each row."""
    seed: int
    dtype: torch.dtype = torch.float32
    fp8: bool = False
    """K and V are stored in 8 bits."""
    kv_scale: float = 1.0


def ref_attention(query: Tensor, keys: Tensor, values: Tensor, case: Case) -> Tensor:
    """query: (t, H, D), the last t of L positions. keys, values: (L, H_kv, D). (t, H, D)."""
    length, count = keys.shape[0], query.shape[0]
    output = torch.empty_like(query)
    for index in range(count):
        position = length - count + index
        first = 0 if case.window is None else max(0, position - case.window + 1)
        for head in range(query.shape[1]):
            kv_head = head // case.group
            scores = keys[first : position + 1, kv_head] @ query[index, head] * SCALING
            if case.softcap is not None:
                scores = case.softcap * torch.tanh(scores / case.softcap)
            output[index, head] = scores.softmax(0) @ values[first : position + 1, kv_head]
    return output


def run_case(
    case: Case, backend: AttentionBackend, device: str = "cpu", unwritten: float = 0.0
) -> None:
    """Raises AssertionError where the backend's output is another.

    unwritten: what slots hold that no row has written.
    """
    generator = torch.Generator().manual_seed(case.seed)
    shape = LayerShape(case.num_kv_heads, case.head_dim)
    layout = KVLayout(
        layers=(shape,),
        block_size=case.block_size,
        dtype=FP8 if case.fp8 else case.dtype,
        computed=case.dtype,
        kv_scale=case.kv_scale,
    )
    num_blocks = [-(-(context + count) // case.block_size) for context, count in case.rows]
    cache = KVCache(layout, sum(num_blocks), torch.device(device))
    for layer in cache.layers:
        layer.fill_(unwritten)
    free = list(range(sum(num_blocks)))
    random.Random(case.seed).shuffle(free)
    rows, inputs = [], []
    for (context, count), blocks in zip(case.rows, num_blocks, strict=True):
        length = context + count
        table = [free.pop() for _ in range(blocks)]
        rows.append(ScheduledSequence(sequence(length, table), context, count))
        keys, values = torch.randn(2, length, *shape, generator=generator).to(case.dtype)
        query = torch.randn(count, case.group * shape[0], shape[1], generator=generator)
        inputs.append((query.to(case.dtype), keys, values))
        slots = torch.tensor(
            [
                table[i // case.block_size] * case.block_size + i % case.block_size
                for i in range(context)
            ],
            dtype=torch.int64,
        )
        cache.write(0, slots.to(device), keys[:context].to(device), values[:context].to(device))
    batch = StepBatch(rows, layout, torch.device(device))

    # The flattened order is the batch's own: single tokens first, the longest context first.
    order = sorted(
        range(len(rows)),
        key=lambda row: (rows[row].count > 1, -rows[row].start * (rows[row].count == 1)),
    )
    query = torch.cat([inputs[row][0] for row in order]).transpose(0, 1)[None].to(device)
    key, value = (
        torch.cat([inputs[row][kind][rows[row].start :] for row in order])
        .transpose(0, 1)[None]
        .to(device)
        for kind in (1, 2)
    )
    with paged_step(PagedStep(cache, batch, backend(batch, cache))):
        output, _ = paged_attention(
            Layer(),
            query,
            key,
            value,
            None,
            scaling=SCALING,
            sliding_window=case.window,
            softcap=case.softcap,
        )
    expected = torch.cat(
        [
            ref_attention(inputs[row][0].float(), *map(_read_back(case), inputs[row][1:]), case)
            for row in order
        ]
    )
    tolerance = TOLERANCES[case.dtype]
    assert output.dtype == case.dtype
    torch.testing.assert_close(output[0].float().cpu(), expected, atol=tolerance, rtol=tolerance)


def _read_back(case: Case) -> Callable[[Tensor], Tensor]:
    """K or V as read back after being stored."""

    def read_back(written: Tensor) -> Tensor:
        if not case.fp8:
            return written.float()
        scaled = (written / case.kv_scale).clamp(-448, 448).to(FP8)
        return scaled.to(case.dtype).float() * case.kv_scale

    return read_back


def sequence(length: int, table: list[int]) -> Sequence:
    return Sequence(
        sequence_id=0,
        request_id=0,
        tokens=[0] * length,
        prompt_length=length,
        sampling=SamplingParams(max_tokens=1),
        hasher=PrefixHasher(b"", 16),
        block_table=table,
    )
