"""The kernels against attention written from its definition; `test_triton.py` runs this file."""

import pytest
import torch

from kvscope_engine.model.attention.backend import AttentionBackend
from kvscope_engine.model.attention.triton.backend import TritonAttention, triton_attention
from kvscope_engine.model.attention.triton.plan import Splitting, step_plan
from kvscope_engine.model.kv_cache import KVCache
from kvscope_engine.model.step_batch import StepBatch
from tests.support.attention_cases import Case, run_case

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RAGGED = ((0, 1), (70, 1), (130, 1), (15, 1), (16, 1), (0, 9), (33, 70), (140, 3))
"""Decode rows from 1 to 131 tokens, a prompt, and chunks, one of more than a tile."""


def finely_split(batch: StepBatch, cache: KVCache) -> TritonAttention:
    """As on a GPU with enough cores that even short contexts are split, some into empty parts."""
    decode, tiles = step_plan(batch)
    if decode is not None:
        parts = Splitting(19, 19, 1, 1)
        decode.splitting = lambda num_kv_heads, window: parts  # type: ignore[method-assign]
    return TritonAttention(cache, decode, tiles)


def check(case: Case, backend: AttentionBackend) -> None:
    """Slots that no row has written are NaN: reading it, even behind a mask, would show."""
    run_case(case, backend, DEVICE, unwritten=float("nan"))


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_head_sizes(head_dim: int) -> None:
    check(Case(16, 2, 2, head_dim, None, None, RAGGED, head_dim), triton_attention)


@pytest.mark.parametrize("block_size", [3, 8, 128])
def test_block_sizes(block_size: int) -> None:
    check(Case(block_size, 2, 2, 16, None, None, RAGGED, 1), triton_attention)


@pytest.mark.parametrize(("num_kv_heads", "group"), [(4, 1), (2, 7), (1, 71)])
def test_groups_of_query_heads(num_kv_heads: int, group: int) -> None:
    rows = ((70, 1), (20, 5))
    case = Case(16, num_kv_heads, group, 16, None, None, rows, 2)
    check(case, finely_split)


@pytest.mark.parametrize("window", [1, 24, 64, 1000])
def test_windows(window: int) -> None:
    check(Case(16, 1, 2, 16, window, None, RAGGED, window), finely_split)


@pytest.mark.parametrize("window", [None, 24])
def test_softcap(window: int | None) -> None:
    check(Case(16, 1, 2, 16, window, 0.5, RAGGED, 3), finely_split)


def test_scores_far_beyond_the_softcap_stay_finite() -> None:
    check(Case(16, 1, 2, 16, None, 1e-3, RAGGED, 3), triton_attention)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("fp8", [False, True], ids=["plain", "fp8"])
def test_element_types(dtype: torch.dtype, fp8: bool) -> None:
    case = Case(16, 2, 2, 80, 100, None, RAGGED, 4, dtype, fp8, 0.25 if fp8 else 1.0)
    check(case, finely_split)


@pytest.mark.parametrize("window", [None, 300])
def test_chunks_of_long_prompts_in_wide_tiles(window: int | None) -> None:
    rows = ((2040, 140), (0, 20), (500, 1))
    check(Case(16, 1, 2, 16, window, None, rows, 6, torch.float16), triton_attention)


def test_fp8_beside_float32() -> None:
    case = Case(16, 2, 2, 64, None, None, RAGGED, 5, torch.float32, True, 0.5)
    check(case, triton_attention)
