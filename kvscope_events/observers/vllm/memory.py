"""Device memory figures of a vLLM worker; those that this vLLM or torch does not keep are left out.

Nothing here touches the current device: every call names one.
"""

import os
from typing import Any

from kvscope_events.memory import DeviceMemorySampled

Terms = dict[str, int]


def device_of(worker: Any) -> Any:
    """The worker's device; on older CPU workers, that of their model runner. None: neither has
    one."""
    device = getattr(worker, "device", None)
    if device is None:
        device = getattr(getattr(worker, "model_runner", None), "device", None)
    return device


def device_uuid(device: Any) -> str | None:
    """The device as NVML spells it; None if it is not a CUDA device, or torch does not say."""
    if getattr(device, "type", None) != "cuda":
        return None
    import torch  # type: ignore[import-not-found,unused-ignore]

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"


def weights_bytes(worker: Any) -> int:
    """Memory taken by loading, as vLLM measured it; on a CPU, all parameters and buffers, once
    each."""
    runner = worker.model_runner
    measured = getattr(runner, "model_memory_usage", None)
    if isinstance(measured, (int, float)) and measured > 0:
        return int(measured)
    model = runner.get_model() if hasattr(runner, "get_model") else runner.model
    storages: dict[int, int] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values()) + sum(map(_packed_bytes, model.modules()))


def _packed_bytes(layer: Any) -> int:
    """Weights that a CPU kernel keeps in a form of its own, the layer's parameter being empty."""
    weight = getattr(layer, "weight", None)
    rows = getattr(layer, "output_size_per_partition", None)
    columns = getattr(layer, "input_size_per_partition", None)
    if weight is None or not isinstance(rows, int) or not isinstance(columns, int):
        return 0
    return 0 if weight.numel() else rows * columns * int(weight.element_size())


def machine_memory() -> Terms:
    """`total` and `in_use_at_start` of this machine, for a worker on a CPU."""
    figures: dict[str, int] = {}
    with open("/proc/meminfo") as file:
        for line in file:
            name, _, rest = line.partition(":")
            figures[name] = int(rest.split()[0]) * 1024
    total = figures["MemTotal"]
    return {"total": total, "in_use_at_start": total - figures["MemAvailable"]}


def device_memory(worker: Any) -> Terms:
    """The same for a device, and vLLM's share of it; empty if vLLM took no snapshot."""
    snapshot = getattr(worker, "init_snapshot", None)
    if snapshot is None:
        return {}
    total = int(snapshot.total_memory)
    terms = {"total": total, "in_use_at_start": total - int(snapshot.free_memory)}
    requested = getattr(worker, "requested_memory", None)
    if requested is not None:
        terms["requested"] = int(requested)
    return terms


def profiled_memory(worker: Any, weights: int, allocated: int | None) -> Terms:
    """Results of the profiling run; empty if it did not run, as with a configured pool.

    allocated: torch's live bytes after the run: beyond the weights they are buffers. Since 0.27
    vLLM measures weights, buffers and memory outside torch as one figure.
    """
    terms: Terms = {}
    peak = getattr(worker, "peak_activation_memory", None)
    if peak is not None:
        terms["activation_peak"] = int(peak)
    consumed = getattr(worker, "total_consumed", None)
    if consumed is None:
        non_torch = getattr(worker, "non_torch_memory", None)
        if non_torch is not None:
            terms["non_torch"] = int(non_torch)
    elif allocated is not None:
        terms["buffers"] = max(0, min(allocated, int(consumed)) - weights)
        terms["non_torch"] = int(consumed) - weights - terms["buffers"]
    return terms


def sizing_terms(measured: Terms, weights: int, kv_pool: int) -> Terms:
    """All terms, which add up to the total; empty if they cannot, or if the total is not known."""
    if "total" not in measured:
        return {}
    parts = {name: n for name, n in measured.items() if name not in ("total", "requested")}
    parts |= {"weights": weights, "kv_pool": kv_pool}
    parts["unclaimed"] = measured["total"] - sum(parts.values())
    # Negative if another process took or gave back memory meanwhile, or more blocks were requested.
    if min(parts.values()) < 0:
        return {}
    totals = {name: measured[name] for name in ("total", "requested") if name in measured}
    return totals | parts


class Sampler:
    """Samples one device. Several in one process see the same allocator."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._pid = os.getpid()
        self._peak_before_pool: int | None = None
        self.uuid = device_uuid(device)
        self.weights_bytes = 0
        """0 until the model is loaded."""
        self.kv_pool_bytes = 0
        """0 until there is a pool."""

    def allocated_bytes(self) -> int | None:
        """torch's live bytes."""
        return _figure(self._statistics(), "allocated_bytes")

    def pool_follows(self) -> None:
        """Remember the peak of start-up, which hides smaller ones of later steps."""
        self._peak_before_pool = _figure(self._statistics(), "allocated_bytes", "peak")

    def sample(self) -> DeviceMemorySampled:
        """The figures of this moment; takes about 0.1 ms on CUDA, and resets no peak."""
        stats = self._statistics()
        peak = _figure(stats, "allocated_bytes", "peak")
        return DeviceMemorySampled(
            self._pid,
            self.uuid,
            self.weights_bytes,
            self.kv_pool_bytes,
            allocated_bytes=_figure(stats, "allocated_bytes"),
            active_bytes=_figure(stats, "active_bytes"),
            reserved_bytes=_figure(stats, "reserved_bytes"),
            requested_bytes=_figure(stats, "requested_bytes"),
            inactive_split_bytes=_figure(stats, "inactive_split_bytes"),
            allocated_peak_bytes=peak,
            reserved_peak_bytes=_figure(stats, "reserved_bytes", "peak"),
            alloc_retries=stats.get("num_alloc_retries"),
            ooms=stats.get("num_ooms"),
            activation_peak_bytes=self._activation_peak(peak),
        )

    def _activation_peak(self, peak: int | None) -> int | None:
        """Known only if the peak was reached after the pool was allocated."""
        before = self._peak_before_pool
        if peak is None or before is None or not self.kv_pool_bytes or peak <= before:
            return None
        return max(0, peak - self.weights_bytes - self.kv_pool_bytes)

    def _statistics(self) -> dict[str, Any]:
        if self.uuid is None:
            return {}
        import torch

        stats: dict[str, Any] = torch.cuda.memory_stats_as_nested_dict(self._device)
        return stats


def _figure(stats: dict[str, Any], family: str, statistic: str = "current") -> int | None:
    """A statistic over all of torch's pools; None where its backend does not keep it."""
    value = stats.get(family, {}).get("all", {}).get(statistic)
    return value if isinstance(value, int) else None
