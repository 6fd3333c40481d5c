"""Device memory: where its bytes went, what torch holds, what is left before a step fails."""

from typing import get_args

from kvscope_events.vocabulary import OutOfMemoryAction
from kvscope_exporter.catalogue.metric import DEVICE, ENGINE, Metric

_SAMPLED = ("DeviceMemorySampled",)


def _torch(figure: str, help: str) -> Metric:
    return Metric(
        name=f"kvscope_gpu_torch_{figure}_bytes",
        kind="gauge",
        help=help,
        unit="bytes",
        group="device_memory",
        detail="lean" if figure == "reserved" else "full",
        labels=DEVICE,
        otel_name=f"kvscope.gpu.torch.{figure}",
        events=_SAMPLED,
    )


DEVICE_MEMORY = (
    Metric(
        name="kvscope_gpu_memory_component_bytes",
        kind="gauge",
        help="GPU memory by what holds it; the components sum to the device's memory.",
        notes="For a server that reports no figures of its own, server_process stands for weights, "
        "kv_pool, torch_* and non_torch. Where the driver does not report the memory of each "
        "process, unsplit stands for non_torch, other_processes and unattributed.",
        unit="bytes",
        least=None,  # the remainder is negative if the parts were read at different moments
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
    ),
    Metric(
        name="kvscope_gpu_memory_headroom_bytes",
        kind="gauge",
        help="Memory that the next allocation can get: free memory and what torch can return.",
        unit="bytes",
        least=None,
        group="device_memory",
        labels=DEVICE,
        otel_name="kvscope.gpu.memory.headroom",
        events=_SAMPLED,
    ),
    Metric(
        name="kvscope_gpu_activation_peak_bytes",
        kind="gauge",
        help="Largest activations of a step so far, the profiling step at start-up included.",
        notes="With less headroom than this, the next step as large fails.",
        unit="bytes",
        group="device_memory",
        labels=DEVICE,
        otel_name="kvscope.gpu.activation_peak",
        events=_SAMPLED,
    ),
    _torch("allocated", "Memory that tensors hold in torch's allocator."),
    _torch(
        "active",
        "Memory of torch's allocator that is in use, or will be free once a stream has passed it.",
    ),
    _torch("reserved", "Memory that torch's allocator has reserved from the driver."),
    _torch("requested", "Memory that tensors requested, before the allocator rounded it up."),
    _torch(
        "inactive_split", "Free parts of split blocks, which torch cannot return to the driver."
    ),
    _torch(
        "allocated_peak", "The most memory that tensors have held so far; kvscope never resets it."
    ),
    _torch(
        "reserved_peak", "The most memory that torch has reserved so far; kvscope never resets it."
    ),
    Metric(
        name="kvscope_gpu_torch_alloc_retries_total",
        kind="counter",
        help="Allocations that needed torch's cache released first: early sign of a full device.",
        unit="retries",
        group="device_memory",
        labels=DEVICE,
        otel_name="kvscope.gpu.torch.alloc_retries",
        events=_SAMPLED,
    ),
    Metric(
        name="kvscope_gpu_torch_ooms_total",
        kind="counter",
        help="Allocations that torch could not serve, whether or not the error was caught.",
        unit="errors",
        group="device_memory",
        detail="full",
        labels=DEVICE,
        otel_name="kvscope.gpu.torch.ooms",
        events=_SAMPLED,
    ),
    Metric(
        name="kvscope_engine_oom_events_total",
        kind="counter",
        help="Steps that ran out of device memory, by outcome: retried smaller, or given up.",
        unit="events",
        group="device_memory",
        labels={**ENGINE, "action": get_args(OutOfMemoryAction)},
        otel_name="kvscope.engine.oom_events",
        events=("DeviceOutOfMemory",),
    ),
)
