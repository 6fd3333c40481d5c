"""The kernels compile for GPUs that are not here, and fit into their shared memory.

`test_triton.py` runs this file, with the interpreter off.
"""

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kvscope_engine.model import decoder_kernels
from kvscope_engine.model.attention.triton import decode, prefill
from kvscope_engine.model.attention.triton.launch import (
    PagedLayer,
    ProgramShape,
    dot_type,
    power_of_two,
)
from kvscope_engine.model.attention.triton.plan import PREFILL_TILE
from kvscope_engine.model.kv_cache import FP8

SHARED_BYTES = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024}
"""Limit of one program, by compute capability."""
NAMES = {torch.bfloat16: "bf16", torch.float32: "fp32", FP8: "fp8e4nv"}
POINTERS = {"query", "keys", "values", "tables", "contexts", "spans", "tiles", "output"} | {
    *("logsumexp", "partial", "projected", "cos", "sin", "slots", "rotated", "gated"),
    *("hidden", "weight", "normed"),
    *("query_weight", "key_weight"),
}
FLOATS = {"scale", "softcap", "value_scale", "kv_scale", "epsilon"}
ALIGNED = {"query_row_stride", "query_token_stride", "query_head_stride", "block_stride"} | {
    "slot_stride",
    "kv_head_stride",
}


def shared_bytes(
    kernel: triton.runtime.JITFunction,
    capability: int,
    types: dict[str, str],
    constants: dict[str, object],
    shape: ProgramShape,
) -> int:
    """Compiles. types: of what pointers point at, where it is not int32."""
    signature = {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        elif name in POINTERS:
            signature[name] = f"*{types.get(name, 'i32')}"
        else:
            signature[name] = "fp32" if name in FLOATS else "i32"
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(kernel.arg_names)
        if name in POINTERS | ALIGNED
    }
    compiled = triton.compile(
        ASTSource(kernel, signature, constexprs=constants, attrs=aligned),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": shape.num_warps, "num_stages": shape.num_stages},
    )
    return int(compiled.metadata.shared)


@pytest.mark.parametrize(
    ("capability", "dtype", "stored", "head_dim"),
    [
        (80, torch.bfloat16, torch.bfloat16, 128),
        (89, torch.bfloat16, FP8, 80),
        (89, torch.float32, torch.float32, 256),
        (89, torch.float32, FP8, 128),
        (90, torch.bfloat16, torch.bfloat16, 128),
        (90, torch.bfloat16, torch.bfloat16, 256),
        (90, torch.bfloat16, FP8, 128),
    ],
)
@pytest.mark.parametrize("extras", [False, True], ids=["plain", "window and softcap"])
def test_kernels_compile(
    capability: int, dtype: torch.dtype, stored: torch.dtype, head_dim: int, extras: bool
) -> None:
    kv = torch.empty(1, 16, 8, head_dim, dtype=stored)
    layer = PagedLayer(kv, kv, 1.0, 0.0, 1.0, 0)
    common = {
        "GROUP": 4,
        "HEAD_DIM": head_dim,
        "PADDED_DIM": power_of_two(head_dim),
        "BLOCK_SIZE": 16,
        "WINDOWED": extras,
        "SOFTCAP": extras,
        "DOT_TYPE": dot_type(dtype, stored),
    }
    types = {"query": NAMES[dtype], "keys": NAMES[stored], "values": NAMES[stored]}
    for split in (False, True):
        shape = layer.decode_shape(dtype.itemsize)
        constants = common | {
            "GROUP_TILES": 1,
            "TILE_HEADS": 16,
            "TILE_KEYS": shape.tile_keys,
            "SPLIT": split,
        }
        written = {"output": "fp32" if split else NAMES[dtype], "logsumexp": "fp32"}
        used = shared_bytes(decode._decode_kernel, capability, types | written, constants, shape)
        beside = 2 if stored.itemsize == 2 else 1  # programs at once on one multiprocessor
        assert used <= SHARED_BYTES[capability] // beside
    shape = layer.prefill_shape(dtype.itemsize, SHARED_BYTES[capability], 8192)
    constants = common | {
        "PIECES": PREFILL_TILE // shape.tile_tokens,
        "TILE_TOKENS": shape.tile_tokens,
        "TILE_KEYS": shape.tile_keys,
    }
    written = {"output": NAMES[dtype]}
    used = shared_bytes(prefill._prefill_kernel, capability, types | written, constants, shape)
    assert used <= SHARED_BYTES[capability]


def test_the_join_compiles() -> None:
    constants = {"HEAD_DIM": 80, "PADDED_DIM": 128, "TILE_SPLITS": decode._JOINED_AT_ONCE}
    types = {"partial": "fp32", "logsumexp": "fp32", "output": "bf16"}
    assert shared_bytes(decode._join_kernel, 80, types, constants, ProgramShape(0, 4, 3)) < 1 << 16


@pytest.mark.parametrize(
    ("capability", "stored"),
    [(80, torch.bfloat16), (89, torch.bfloat16), (89, FP8), (90, torch.bfloat16), (90, FP8)],
)
@pytest.mark.parametrize("normed", [False, True])
def test_the_kernels_of_a_layer_compile(capability: int, stored: torch.dtype, normed: bool) -> None:
    constants = {
        "NUM_HEADS": 32,
        "NUM_KV_HEADS": 8,
        "TILE_HEADS": 8,
        "HEAD_DIM": 80,
        "PADDED_DIM": 128,
        "NORMED": normed,
        "MOST": 448.0 if stored == FP8 else 0.0,
    }
    computed = dict.fromkeys(POINTERS, "bf16")
    types = computed | {"slots": "i64", "keys": NAMES[stored], "values": NAMES[stored]}
    shape = ProgramShape(0, 4, 3)
    shared_bytes(decoder_kernels._heads_kernel, capability, types, constants, shape)
    shared_bytes(decoder_kernels._gate_kernel, capability, computed, {"TILE": 1024}, shape)
    widths: dict[str, object] = {"WIDTH": 5120, "PADDED": 8192}
    shared_bytes(decoder_kernels._norm_kernel, capability, computed, widths, ProgramShape(0, 8, 3))
