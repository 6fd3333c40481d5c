"""A layer's kernels against the same work in plain torch; `test_triton.py` runs this file."""

import pytest
import torch

from kvscope_engine.model import decoder_kernels
from kvscope_engine.model.attention.backend import LayerOptions
from kvscope_engine.model.attention.interface import PagedStep
from kvscope_engine.model.kv_cache import FP8, KVCache, KVLayout, LayerShape
from kvscope_engine.model.plain_decoder import _KernelOperations, _Layer, _Norm, _TorchOperations

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
STORED = {"plain": False, "fp8": True} if DEVICE.type == "cuda" else {"plain": False}
"""The interpreter does not carry when it rounds to fp8: it makes 4 of 7.9."""
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
TOKENS = 7
NUM_HEADS = 6
BLOCK_SIZE = 4
NUM_BLOCKS = 5


class Batch:
    """The part of a batch that writing reads."""

    def __init__(self) -> None:
        self.slots = torch.randperm(NUM_BLOCKS * BLOCK_SIZE)[:TOKENS].to(DEVICE)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("fp8", STORED.values(), ids=STORED)
@pytest.mark.parametrize("normed", [False, True], ids=["plain heads", "normed heads"])
@pytest.mark.parametrize(("num_kv_heads", "head_dim"), [(1, 16), (2, 80), (6, 128)])
def test_heads_are_rotated_and_written_as_by_torch(
    dtype: torch.dtype, fp8: bool, normed: bool, num_kv_heads: int, head_dim: int
) -> None:
    torch.manual_seed(head_dim + normed)
    width = (NUM_HEADS + 2 * num_kv_heads) * head_dim
    projected = (3 * torch.randn(TOKENS, width)).to(DEVICE, dtype)
    turns = torch.rand(TOKENS, head_dim // 2) * 6
    cos, sin = turns.cos().repeat(1, 2), torch.cat((-turns.sin(), turns.sin()), dim=1)
    angles = (cos[:, None].to(DEVICE, dtype), sin[:, None].to(DEVICE, dtype))
    weights = [(0.5 + torch.rand(head_dim)).to(DEVICE, dtype) for _ in range(2)]
    norms = (_Norm(weights[0], 1e-6), _Norm(weights[1], 1e-6)) if normed else None
    layer = _layer(norms, projected)
    batch = Batch()
    found = []
    for operations in (_TorchOperations(), _KernelOperations()):
        layout = KVLayout(
            layers=(LayerShape(num_kv_heads, head_dim),),
            block_size=BLOCK_SIZE,
            dtype=FP8 if fp8 else dtype,
            computed=dtype,
            kv_scale=0.25 if fp8 else 1.0,
        )
        cache = KVCache(layout, NUM_BLOCKS, DEVICE)
        step = PagedStep(cache, batch, None)  # type: ignore[arg-type]
        heads = operations.write_heads(projected, layer, angles, step)
        stored = [part.to(torch.float32) for part in cache.blocks[0]]
        found.append([part.to(torch.float32) for part in heads] + stored)
    tolerance = TOLERANCES[dtype]
    coarse = 0.13 if fp8 else tolerance  # a rounding more or less is one of 3 bits
    for (ours, theirs), allowed in zip(
        zip(found[1], found[0], strict=True), [tolerance] * 3 + [coarse] * 2, strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=8 * tolerance, rtol=allowed)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("width", [96, 1500])
def test_gates_are_those_of_torch(dtype: torch.dtype, width: int) -> None:
    torch.manual_seed(width)
    projected = torch.randn(TOKENS, 2 * width).to(DEVICE, dtype)
    ours = decoder_kernels.silu_gated(projected)
    gate, up = projected.float().chunk(2, dim=1)
    exact = torch.nn.functional.silu(gate) * up
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(ours.float(), exact, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("width", [64, 300])
def test_norms_are_those_of_torch(dtype: torch.dtype, width: int) -> None:
    torch.manual_seed(width)
    hidden = (2 * torch.randn(TOKENS, width)).to(DEVICE, dtype)
    norm = _Norm((0.5 + torch.rand(width)).to(DEVICE, dtype), 1e-6)
    ours = _KernelOperations().normed(hidden, norm)
    theirs = _TorchOperations().normed(hidden.float(), _Norm(norm.weight.float(), 1e-6))
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(ours.float(), theirs, atol=tolerance, rtol=tolerance)


def _layer(norms: tuple[_Norm, _Norm] | None, like: torch.Tensor) -> _Layer:
    """Only what is between the products."""
    norm = _Norm(like, 1e-6)
    return _Layer(
        options=LayerOptions(0, None, None, None),
        attention_norm=norm,
        qkv=like,
        qkv_bias=None,
        head_norms=norms,
        output=like,
        mlp_norm=norm,
        gate_up=like,
        activation=torch.nn.functional.silu,
        down=like,
    )
