"""Paged attention against dense attention written down from the definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvscope_engine.model.attention import torch_plan
from kvscope_engine.model.attention.backend import AttentionBackend
from kvscope_engine.model.attention.cpu.backend import CpuAttention
from kvscope_engine.model.attention.interface import (
    PagedStep,
    UnsupportedAttentionError,
    paged_attention,
    paged_step,
)
from kvscope_engine.model.attention.torch_backend import TorchAttention, attend
from kvscope_engine.model.kv_cache import KVCache, KVLayout, LayerShape
from kvscope_engine.model.step_batch import StepBatch
from kvscope_engine.step_plan import ScheduledSequence
from tests.support.attention_cases import Case, Layer, run_case, sequence

BACKENDS: tuple[AttentionBackend, ...] = (TorchAttention, CpuAttention)

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
    fp8=st.booleans(),
    kv_scale=st.sampled_from([1.0, 0.25]),
)


@given(case=CASES)
def test_equals_dense_attention(case: Case) -> None:
    for backend in BACKENDS:
        run_case(case, backend)


def test_decode_groups_of_very_different_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_plan, "PADDED_ELEMENTS", 64)
    monkeypatch.setattr(torch_plan, "CPU_GROUP_ELEMENTS", 1024)
    rows = tuple((context, 1) for context in (0, 90, 3, 89, 50, 90, 88, 7, 1))
    run_case(Case(4, 2, 2, 8, None, None, rows, 0), TorchAttention)
    run_case(Case(4, 2, 2, 8, 10, None, rows, 0), TorchAttention)


@pytest.mark.parametrize("window", [9, 10, 11, 12])
def test_prompts_about_as_long_as_the_window(window: int) -> None:
    case = Case(4, 2, 2, 8, window, None, ((0, 11), (0, 1), (9, 1), (10, 1), (3, 8)), 0)
    for backend in BACKENDS:
        run_case(case, backend)


def test_softcapping_in_several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope_engine.model.attention.torch_backend._QUERIES_AT_ONCE", 4)
    run_case(Case(4, 2, 2, 8, None, 0.5, ((0, 11), (6, 9)), 0), TorchAttention)
    run_case(Case(4, 2, 2, 8, 5, 0.5, ((0, 11), (6, 9)), 0), TorchAttention)


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
    batch = StepBatch([ScheduledSequence(sequence(2, [0]), 0, 2)], layout, cache.device)
    query, key, value = (
        torch.zeros(1, 2, 2, 4),
        torch.zeros(1, 2, 2, 4),
        torch.zeros(1, 2, 2, value_dim),
    )
    with paged_step(PagedStep(cache, batch, TorchAttention(batch, cache))):
        paged_attention(layer, query, key, value, None, **arguments)
