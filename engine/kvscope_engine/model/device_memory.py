"""Memory of a CUDA device, as torch and the CUDA runtime report it."""

import gc

import torch

from kvscope_engine.sizing import MainMemory, MeasuredDevice


class CudaMemory:
    """Memory of one device. The first call creates this process's CUDA context there."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def total(self) -> int:
        return torch.cuda.mem_get_info(self._device)[1]

    def free(self) -> int:
        return torch.cuda.mem_get_info(self._device)[0]

    def allocated(self) -> int:
        return torch.cuda.memory_allocated(self._device)

    def peak(self) -> int:
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device)

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)

    def trim(self) -> None:
        gc.collect()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()


def memory_of(device: torch.device) -> MeasuredDevice | MainMemory:
    """The meter for this device."""
    return MainMemory() if device.type == "cpu" else CudaMemory(device)
