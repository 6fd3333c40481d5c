"""Tells torch's out-of-memory errors from its other errors, on CUDA and on a CPU."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kvscope_engine.out_of_memory import DeviceOutOfMemoryError

_CUDA = re.compile(r"Tried to allocate (?P<amount>[\d.]+) (?P<unit>bytes|[KMGT]iB)")
_CPU = re.compile(r"DefaultCPUAllocator: .*you tried to allocate (?P<amount>\d+) bytes", re.DOTALL)
_LIBRARY = re.compile(r"CU(BLAS|DNN|SPARSE|SOLVER)_STATUS_ALLOC_FAILED|CUDA error: out of memory")
"""Errors of libraries that allocate past torch's allocator; they name no amount."""
_CUDNN = re.compile(r"mha_graph|cudnn_frontend|CUDNN_STATUS_EXECUTION_FAILED")
"""Errors of cuDNN's attention when it cannot load its kernel, for lack of memory or otherwise."""
_SCARCE_BYTES = 2**30
"""With less than this free, memory was the reason: cuDNN needs tens of megabytes."""
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@contextmanager
def device_out_of_memory() -> Iterator[None]:
    """Turns an out-of-memory error of torch into ours; other errors pass as they are."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DeviceOutOfMemoryError(_wanted(str(error))) from error
    except RuntimeError as error:  # the CPU's allocator and CUDA's libraries have no class for it
        message = str(error)
        match = _CPU.search(message)
        if match is None and not _LIBRARY.search(message) and not _cudnn_lacks_memory(message):
            raise
        raise DeviceOutOfMemoryError(None if match is None else int(match["amount"])) from error


def _cudnn_lacks_memory(message: str) -> bool:
    if _CUDNN.search(message) is None or not torch.cuda.is_available():
        return False
    return torch.cuda.mem_get_info()[0] < _SCARCE_BYTES


def _wanted(message: str) -> int | None:
    """Bytes, as precise as the message: two decimals of its unit."""
    match = _CUDA.search(message)
    return None if match is None else round(float(match["amount"]) * _UNITS[match["unit"]])
