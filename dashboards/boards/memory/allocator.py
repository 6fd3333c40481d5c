"""Memory: what does torch's allocator do?"""

from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import BYTES, RATIO, Q, graph
from dashboards.kit.queries import BY_GPU, GPU_LEGEND, gpu, total, worst
from kvscope_monitoring.formulas import share

_NO_TORCH = "No server publishes the figures of a torch allocator on a GPU."


def _gpu(name: str, **labels: str) -> str:
    return gpu(f"kvscope_gpu_{name}", **labels)


_FIGURES = (
    *("reserved", "active", "allocated", "requested", "inactive_split"),
    *("reserved_peak", "allocated_peak"),
)


def row() -> Row:
    return Row(
        500,
        "What does torch's allocator do?",
        [
            graph(
                501,
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
            ),
            graph(
                502,
                "Fragmentation",
                "Inactive split memory, free pieces inside segments that are in use, as a share of "
                "what torch reserved. Above a tenth: set expandable_segments:True in "
                "PYTORCH_CUDA_ALLOC_CONF.",
                RATIO,
                *outstanding(
                    share(
                        total(_gpu("torch_inactive_split_bytes"), BY_GPU),
                        total(_gpu("torch_reserved_bytes"), BY_GPU),
                    ),
                    GPU_LEGEND,
                    by=BY_GPU,
                ),
                span=8,
                when_absent=_NO_TORCH,
            ),
            graph(
                503,
                "Which processes hold memory on the card?",
                "By the driver's list of processes: this server, and all others. Others that grow "
                "take what your next step needs: `nvidia-smi` names them.",
                BYTES,
                Q(total(_gpu("process_memory_bytes"), "owner"), "{{owner}}"),
                Q(
                    worst(_gpu("mig_memory_bytes"), "uuid, gpu_instance_id, state"),
                    "MIG {{gpu_instance_id}} {{state}} of {{uuid}}",
                ),
                stacked=True,
                colours={"server": "blue", "other": "red"},
                span=8,
                when_absent="Processes are not visible, or their memory is not published.",
            ),
        ],
    )
