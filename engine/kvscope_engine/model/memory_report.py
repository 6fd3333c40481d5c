"""The engine's own view of its device memory: weights, constants, torch's allocator on CUDA."""

import os
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from kvscope_events.events import DeviceMemorySampled


def parameter_bytes(model: nn.Module) -> int:
    """Bytes of the parameters; tied ones count once."""
    return _storage_bytes(model.parameters())


def buffer_bytes(model: nn.Module) -> int:
    """Bytes of the model's other tensors: tables of rotary angles, mostly."""
    return _storage_bytes(model.buffers())


def weight_bytes(model: nn.Module) -> int:
    """Bytes of parameters and buffers."""
    return parameter_bytes(model) + buffer_bytes(model)


def _storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the distinct storages: tied tensors and views count once."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


class MemoryReporter:
    """Samples one device for the engine that owns weights and KV pool on it."""

    def __init__(
        self,
        device: torch.device,
        *,
        weights_bytes: int,
        kv_pool_bytes: int,
        profiled_peak: int = 0,
    ) -> None:
        """profiled_peak: bytes that the largest step at start-up took, before there was a pool."""
        self._device = device
        self._profiled_peak = profiled_peak
        self._weights_bytes = weights_bytes
        self._kv_pool_bytes = kv_pool_bytes
        self._pid = os.getpid()
        self._uuid: str | None = None
        if device.type == "cuda":
            self._uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"

    def sample(self) -> DeviceMemorySampled:
        """The figures of this moment; takes about 0.1 ms on CUDA. Resets no peak."""
        sampled = partial(
            DeviceMemorySampled, self._pid, self._uuid, self._weights_bytes, self._kv_pool_bytes
        )
        if self._device.type != "cuda":
            return sampled()
        stats = torch.cuda.memory_stats_as_nested_dict(self._device)
        peak = _current(stats, "allocated_bytes", "peak")
        held = self._weights_bytes + self._kv_pool_bytes
        return sampled(
            allocated_bytes=_current(stats, "allocated_bytes"),
            active_bytes=_current(stats, "active_bytes"),
            reserved_bytes=_current(stats, "reserved_bytes"),
            requested_bytes=_current(stats, "requested_bytes"),
            inactive_split_bytes=_current(stats, "inactive_split_bytes"),
            allocated_peak_bytes=peak,
            reserved_peak_bytes=_current(stats, "reserved_bytes", "peak"),
            alloc_retries=stats.get("num_alloc_retries"),
            ooms=stats.get("num_ooms"),
            # Start-up's largest step ran without a pool, whose bytes now hide it in torch's peak.
            activation_peak_bytes=None if peak is None else max(peak - held, self._profiled_peak),
        )


def _current(stats: dict[str, Any], family: str, statistic: str = "current") -> int | None:
    """A statistic over all of torch's pools; None where its backend does not keep it."""
    value = stats.get(family, {}).get("all", {}).get(statistic)
    return value if isinstance(value, int) else None
