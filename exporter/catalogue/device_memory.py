"""Device memory: where its bytes went, what torch holds, what is left before a step fails."""

from typing import get_args

from exporter.catalogue.metric import DEVICE, ENGINE, Metric
from kvscope_events.events import OutOfMemoryAction

_SAMPLED = ("DeviceMemorySampled",)


def _torch(figure: str, help: str) -> Metric:
    return Metric(
        name=f"kvscope_gpu_torch_{figure}_bytes",
        kind="gauge",
        help=help,
        unit="bytes",
        group="device_memory",
        labels=DEVICE,
        otel_name=f"kvscope.gpu.torch.{figure}",
        source=_SAMPLED,
    )


DEVICE_MEMORY = (
    Metric(
        name="kvscope_gpu_memory_component_bytes",
        kind="gauge",
        help="Where the device's memory is; the components there are sum to its total exactly. "
        "Of a server that publishes nothing, server_process stands for weights, kv_pool, torch_* "
        "and non_torch; where processes do not tell their bytes, unsplit stands for non_torch, "
        "other_processes and unattributed.",
        unit="bytes",
        group="device_memory",
        labels={
            **DEVICE,
            "component": (
                *("driver_reserved", "free", "weights", "kv_pool", "torch_live_other"),
                *("torch_pending", "torch_cached", "non_torch", "other_processes"),
                *("unattributed", "server_process", "unsplit"),
            ),
        },
        otel_name="kvscope.gpu.memory.component",
        source=_SAMPLED,
    ),
    Metric(
        name="kvscope_gpu_memory_headroom_bytes",
        kind="gauge",
        help="The most that the next allocation can get: free memory, and what torch caches and "
        "can return.",
        unit="bytes",
        group="device_memory",
        labels=DEVICE,
        otel_name="kvscope.gpu.memory.headroom",
        source=_SAMPLED,
    ),
    Metric(
        name="kvscope_gpu_activation_peak_bytes",
        kind="gauge",
        help="The most that a step took beyond weights and KV pool so far, the largest one of "
        "start-up included; with less headroom the next one as large fails.",
        unit="bytes",
        group="device_memory",
        labels=DEVICE,
        otel_name="kvscope.gpu.activation_peak",
        source=_SAMPLED,
    ),
    _torch("allocated", "Memory of torch's allocator that tensors hold."),
    _torch("active", "Memory of torch's allocator in use, or waiting for a stream to end its use."),
    _torch("reserved", "Memory that torch's allocator holds of the driver."),
    _torch("requested", "Memory that tensors asked for, before rounding."),
    _torch("inactive_split", "Free parts of split blocks, which torch cannot return."),
    _torch("allocated_peak", "The most that tensors ever held; the exporter never resets it."),
    _torch("reserved_peak", "The most that torch ever held; the exporter never resets it."),
    Metric(
        name="kvscope_gpu_torch_alloc_retries_total",
        kind="counter",
        help="Allocations that succeeded only after torch had returned its cache: the earliest "
        "sign of a device that is full.",
        unit="retries",
        group="device_memory",
        labels=DEVICE,
        otel_name="kvscope.gpu.torch.alloc_retries",
        source=_SAMPLED,
    ),
    Metric(
        name="kvscope_gpu_torch_ooms_total",
        kind="counter",
        help="Allocations that torch could not serve, whoever asked and whether or not it was "
        "caught.",
        unit="errors",
        group="device_memory",
        labels=DEVICE,
        otel_name="kvscope.gpu.torch.ooms",
        source=_SAMPLED,
    ),
    Metric(
        name="kvscope_engine_oom_events_total",
        kind="counter",
        help="Steps that ran out of device memory, by what the engine did: retried smaller, or "
        "gave up.",
        unit="events",
        group="device_memory",
        labels={**ENGINE, "action": get_args(OutOfMemoryAction)},
        otel_name="kvscope.engine.oom_events",
        source=("DeviceOutOfMemory",),
    ),
)
