"""Paged attention against dense attention written down from the definition."""

import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from engine.hashing import PrefixHasher
from engine.model.attention import torch_plan
from engine.model.attention.backend import AttentionBackend
from engine.model.attention.cpu.backend import CpuAttention
from engine.model.attention.interface import (
    PagedStep,
    UnsupportedAttentionError,
    paged_attention,
    paged_step,
)
from engine.model.attention.torch_backend import TorchAttention, attend
from engine.model.kv_cache import KVCache, KVLayout, LayerShape
from engine.model.step_batch import StepBatch
from engine.sequence import SamplingParams, Sequence
from engine.step_plan import ScheduledSequence

BACKENDS: tuple[AttentionBackend, ...] = (TorchAttention, CpuAttention)


class Layer(nn.Module):
    """What paged attention asks of a layer."""

    def __init__(self, layer_idx: int = 0) -> None:
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


def ref_attention(query: Tensor, keys: Tensor, values: Tensor, scale: float, case: Case) -> Tensor:
    """query: (t, H, D), the last t of L positions. keys, values: (L, H_kv, D). (t, H, D)."""
    length, count = keys.shape[0], query.shape[0]
    output = torch.empty_like(query)
    for index in range(count):
        position = length - count + index
        first = 0 if case.window is None else max(0, position - case.window + 1)
        for head in range(query.shape[1]):
            kv_head = head // case.group
            scores = keys[first : position + 1, kv_head] @ query[index, head] * scale
            if case.softcap is not None:
                scores = case.softcap * torch.tanh(scores / case.softcap)
            output[index, head] = scores.softmax(0) @ values[first : position + 1, kv_head]
    return output


def run_case(case: Case) -> None:
    generator = torch.Generator().manual_seed(case.seed)
    shape = LayerShape(case.num_kv_heads, case.head_dim)
    layout = KVLayout(layers=(shape,), block_size=case.block_size, dtype=torch.float32)
    num_blocks = [-(-(context + count) // case.block_size) for context, count in case.rows]
    cache = KVCache(layout, sum(num_blocks), torch.device("cpu"))
    free = list(range(sum(num_blocks)))
    random.Random(case.seed).shuffle(free)
    rows, inputs = [], []
    for (context, count), blocks in zip(case.rows, num_blocks, strict=True):
        length = context + count
        table = [free.pop() for _ in range(blocks)]
        rows.append(ScheduledSequence(_sequence(length, table), context, count))
        keys, values = torch.randn(2, length, *shape, generator=generator)
        query = torch.randn(count, case.group * shape[0], shape[1], generator=generator)
        inputs.append((query, keys, values))
        slots = torch.tensor(
            [
                table[i // case.block_size] * case.block_size + i % case.block_size
                for i in range(context)
            ],
            dtype=torch.int64,
        )
        cache.write(0, slots, keys[:context], values[:context])
    batch = StepBatch(rows, layout, torch.device("cpu"))

    # The flattened order is the batch's own: single tokens first, the longest context first.
    order = sorted(
        range(len(rows)),
        key=lambda row: (rows[row].count > 1, -rows[row].start * (rows[row].count == 1)),
    )
    query = torch.cat([inputs[row][0] for row in order]).transpose(0, 1)[None]
    key, value = (
        torch.cat([inputs[row][kind][rows[row].start :] for row in order]).transpose(0, 1)[None]
        for kind in (1, 2)
    )
    expected = torch.cat([ref_attention(*inputs[row], 0.3, case) for row in order])
    for backend in BACKENDS:
        with paged_step(PagedStep(cache, batch, backend(batch, cache))):
            output, _ = paged_attention(
                Layer(),
                query,
                key,
                value,
                None,
                scaling=0.3,
                sliding_window=case.window,
                softcap=case.softcap,
            )
        torch.testing.assert_close(output[0], expected, atol=2e-5, rtol=2e-5)


def _sequence(length: int, table: list[int]) -> Sequence:
    return Sequence(
        sequence_id=0,
        request_id=0,
        tokens=[0] * length,
        prompt_length=length,
        sampling=SamplingParams(max_tokens=1),
        hasher=PrefixHasher(b"", 16),
        block_table=table,
    )


CASES = st.builds(
    Case,
    block_size=st.sampled_from([1, 3, 4, 16]),
    num_kv_heads=st.sampled_from([1, 2]),
    group=st.sampled_from([1, 2, 3]),
    head_dim=st.sampled_from([4, 8]),
    window=st.one_of(st.none(), st.integers(1, 30)),
    softcap=st.sampled_from([None, 0.5]),
    rows=st.lists(
        st.tuples(st.integers(0, 40), st.one_of(st.just(1), st.integers(1, 20))),
        min_size=1,
        max_size=5,
    ).map(tuple),
    seed=st.integers(0, 1000),
)


@settings(max_examples=60, deadline=None)
@given(case=CASES)
def test_equals_dense_attention(case: Case) -> None:
    run_case(case)


def test_decode_groups_of_very_different_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_plan, "PADDED_ELEMENTS", 64)
    monkeypatch.setattr(torch_plan, "CPU_GROUP_ELEMENTS", 1024)
    rows = tuple((context, 1) for context in (0, 90, 3, 89, 50, 90, 88, 7, 1))
    run_case(Case(4, 2, 2, 8, None, None, rows, 0))
    run_case(Case(4, 2, 2, 8, 10, None, rows, 0))


@pytest.mark.parametrize("window", [9, 10, 11, 12])
def test_prompts_about_as_long_as_the_window(window: int) -> None:
    run_case(Case(4, 2, 2, 8, window, None, ((0, 11), (0, 1), (9, 1), (10, 1), (3, 8)), 0))


def test_softcapping_in_several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.model.attention.torch_backend._QUERIES_AT_ONCE", 4)
    run_case(Case(4, 2, 2, 8, None, 0.5, ((0, 11), (6, 9)), 0))
    run_case(Case(4, 2, 2, 8, 5, 0.5, ((0, 11), (6, 9)), 0))


def test_default_scaling_is_the_same_with_and_without_softcap() -> None:
    query, keys, values = torch.randn(3, 1, 2, 6, 8, generator=torch.Generator().manual_seed(0))
    plain = attend(query, keys, values, None, None, None)
    capped = attend(query, keys, values, None, None, 1e6)  # so high that it does nothing
    torch.testing.assert_close(plain, capped, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"s_aux": torch.zeros(2)}, "Layer passes 's_aux' to attention, which is not supported"),
        ({"position_bias": torch.zeros(2)}, "Layer passes 'position_bias' to attention"),
        ({"dropout": 0.1}, "Layer asks for a mask, dropout or attention that is not causal"),
        ({"is_causal": False}, "Layer asks for a mask, dropout or attention that is not causal"),
    ],
)
def test_refuses_what_it_does_not_compute(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UnsupportedAttentionError, match=message):
        _attend_once(Layer(), **arguments)


@pytest.mark.parametrize("layer_idx", [1, -1, None])
def test_refuses_a_layer_outside_the_layout(layer_idx: int | None) -> None:
    with pytest.raises(UnsupportedAttentionError, match="has no layer number in range"):
        _attend_once(Layer(layer_idx))


def test_refuses_other_head_sizes() -> None:
    message = r"layer 0 has K of \(2, 4\) and V of \(2, 6\) heads and elements, expected \(2, 4\)"
    with pytest.raises(UnsupportedAttentionError, match=message):
        _attend_once(Layer(), value_dim=6)


def _attend_once(layer: Layer, *, value_dim: int = 4, **arguments: object) -> None:
    layout = KVLayout(layers=(LayerShape(2, 4),), block_size=4, dtype=torch.float32)
    cache = KVCache(layout, 1, torch.device("cpu"))
    batch = StepBatch([ScheduledSequence(_sequence(2, [0]), 0, 2)], layout, cache.device)
    query, key, value = (
        torch.zeros(1, 2, 2, 4),
        torch.zeros(1, 2, 2, 4),
        torch.zeros(1, 2, 2, value_dim),
    )
    with paged_step(PagedStep(cache, batch, TorchAttention(batch, cache))):
        paged_attention(layer, query, key, value, None, **arguments)
