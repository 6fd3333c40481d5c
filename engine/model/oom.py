"""Tells torch's out-of-memory errors from its other errors, on CUDA and on a CPU."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.oom import DeviceOutOfMemoryError

_CUDA = re.compile(r"Tried to allocate (?P<amount>[\d.]+) (?P<unit>bytes|[KMGT]iB)")
_CPU = re.compile(r"DefaultCPUAllocator: .*you tried to allocate (?P<amount>\d+) bytes", re.DOTALL)
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@contextmanager
def out_of_memory_is_told() -> Iterator[None]:
    """Turns an out-of-memory error of torch into ours; other errors pass as they are."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DeviceOutOfMemoryError(_wanted(str(error))) from error
    except RuntimeError as error:  # the CPU's allocator has no error class of its own
        match = _CPU.search(str(error))
        if match is None:
            raise
        raise DeviceOutOfMemoryError(int(match["amount"])) from error


def _wanted(message: str) -> int | None:
    """Bytes, as exactly as the message has them (two digits after the point)."""
    match = _CUDA.search(message)
    return None if match is None else round(float(match["amount"]) * _UNITS[match["unit"]])
