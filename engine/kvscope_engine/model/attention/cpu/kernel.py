"""The decode kernel of `paged_decode.c` as a function of tensors, compiled once per shape."""

import ctypes
import logging
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kvscope_engine.model.attention.backend import LayerOptions
from kvscope_engine.model.attention.cpu.compiler import CompileError, load_function
from kvscope_events.printable import quoted

logger = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_name("paged_decode.c")
_POINTER, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_ARGUMENTS = [
    *(_POINTER, _LONG, _LONG, _POINTER, _POINTER),  # query and its strides, keys, values
    *(_POINTER, _POINTER, _POINTER, _POINTER),  # tables, their starts, contexts, output
    *(_LONG, _LONG, _LONG, _LONG),  # rows, KV heads, block size, window
    *(_FLOAT, _FLOAT, ctypes.c_int),  # scaling, softcap, threads
]
_NO_WINDOW = (1 << 63) - 1


class DecodeRows(NamedTuple):
    """The decode rows of one step."""

    tables: Tensor
    """(n,) int64, their block ids one after the other."""
    starts: Tensor
    """(B,) int64: start of each row's block table."""
    contexts: Tensor
    """(B,) int64, > 0: tokens that each row sees, itself included."""


class DecodeKernel:
    """Attention of one token per row, for heads of one size and number per KV head."""

    def __init__(self, function: Any, head_dim: int, group: int) -> None:
        self._function = function
        self._head_dim = head_dim
        self._group = group

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, rows: DecodeRows, options: LayerOptions
    ) -> Tensor:
        """query: (1, H, T, D), the rows first. keys, values: (num_blocks, block_size, H_kv, D).

        All float32 on a CPU. Returns (B, H, D).
        """
        _, num_heads, _, head_dim = query.shape
        _, block_size, num_kv_heads, _ = keys.shape
        num_rows = len(rows.contexts)
        assert head_dim == keys.shape[3] == self._head_dim
        assert num_heads == num_kv_heads * self._group
        assert query.stride(3) == 1
        assert keys.is_contiguous()
        assert values.is_contiguous()
        assert query.dtype == keys.dtype == values.dtype == torch.float32
        output = torch.empty(num_rows, num_heads, head_dim)
        self._function(
            query.data_ptr(),
            query.stride(2),
            query.stride(1),
            keys.data_ptr(),
            values.data_ptr(),
            rows.tables.data_ptr(),
            rows.starts.data_ptr(),
            rows.contexts.data_ptr(),
            output.data_ptr(),
            num_rows,
            num_kv_heads,
            block_size,
            _NO_WINDOW if options.window is None else options.window,
            head_dim**-0.5 if options.scaling is None else options.scaling,
            options.softcap or 0.0,
            torch.get_num_threads(),
        )
        return output


@cache
def decode_kernel(head_dim: int, group: int) -> DecodeKernel | None:
    """The kernel for `group` query heads per KV head; None, and a line in the log, without one."""
    started = time.monotonic()
    try:
        function = load_function(_SOURCE, "paged_decode", {"HEAD_DIM": head_dim, "GROUP": group})
    except CompileError as error:
        logger.info("decoding runs on plain torch, which is slower: %s", quoted(str(error)))
        return None
    function.argtypes, function.restype = _ARGUMENTS, None
    logger.info(
        "compiled the decode kernel for %d heads of %d per KV head, %.1f s",
        group,
        head_dim,
        time.monotonic() - started,
    )
    return DecodeKernel(function, head_dim, group)
