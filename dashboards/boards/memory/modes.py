"""Memory: three ways to run out, side by side."""

from dashboards.kit.frame import Row
from dashboards.kit.panels import BYTES, COUNT, Q, graph
from dashboards.kit.queries import (
    BY_ENGINE,
    GPU,
    added,
    gpu,
    of_chosen,
    series,
    total,
    worst,
)

_HEADROOM = gpu("kvscope_gpu_memory_headroom_bytes")
_PEAK = gpu("kvscope_gpu_activation_peak_bytes")
_RETRIES = "kvscope_gpu_torch_alloc_retries_total"
_OOMS = "kvscope_engine_oom_events_total"


_FULLEST_HOST = (
    f"topk(3, max_over_time(({worst(series('kvscope_host_memory_unreclaimable_bytes'), BY_ENGINE)})"
    "[$__range:$__interval] @ end()))"
)


def _host(figure: str) -> str:
    return worst(series(f"kvscope_host_memory_{figure}_bytes"), BY_ENGINE)


_NO_TORCH = "No server publishes the figures of a torch allocator on a GPU."


def _gpu(name: str, **labels: str) -> str:
    return gpu(f"kvscope_gpu_{name}", **labels)


_FIGURES = (
    *("reserved", "active", "allocated", "requested", "inactive_split"),
    *("reserved_peak", "allocated_peak"),
)


def row() -> Row:
    return Row(
        300,
        "What grows?  (also known without NVML)",
        [
            graph(
                303,
                "Memory of the host",
                "Memory of the control group, of the three servers that use most. At the limit "
                "the kernel kills the process: no error, no log line, exit code 137. Remedy: a "
                "higher limit; less pinned memory; look for what grows.",
                BYTES,
                *(
                    Q(f"{_host(figure)} and on ({BY_ENGINE}) ({_FULLEST_HOST})", name)
                    for figure, name in {
                        "unreclaimable": "in use, {{instance}}",
                        "limit": "limit, {{instance}}",
                    }.items()
                ),
                span=8,
                listed=True,
                height=8,
            ),
            graph(
                301,
                "Torch's memory",
                "reserved: taken from the driver. active: in use or waiting for a stream. "
                "allocated: of tensors. requested: before rounding. The distance from active to "
                "reserved is cache, which torch can give back except for what is inactive split.",
                BYTES,
                *(
                    Q(total(_gpu(f"torch_{figure}_bytes")), figure.replace("_", " "))
                    for figure in _FIGURES
                ),
                span=8,
                listed=True,
                when_absent=_NO_TORCH,
                height=8,
            ),
            graph(
                305,
                "Device: near misses and errors",
                "retries: torch had to give back its cache first. refused: torch could not serve. "
                "steps: how the engine reacted, by retrying a smaller step or failing it. Any of "
                "them: lower --gpu-memory-utilization.",
                COUNT,
                Q(total(of_chosen(added(_RETRIES, GPU))), "retries"),
                Q(total(of_chosen(added("kvscope_gpu_torch_ooms_total", GPU))), "refused"),
                Q(total(added(_OOMS), "action"), "step {{action}}"),
                colours={
                    "retries": "orange",
                    "refused": "red",
                    "step retried": "purple",
                    "step gave_up": "dark-red",
                },
                when_absent="Not reported by these servers.",
                span=8,
                height=8,
                listed=True,
            ),
        ],
    )
