"""Memory: where did the bytes of the card go?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import BYTES, RATIO, Q, graph
from dashboards.kit.queries import BY_GPU, dcgm, gpu, gpu_room, total, worst
from dashboards.kit.tables import Column, rows

_HEADROOM = gpu("kvscope_gpu_memory_headroom_bytes")
_PEAK = gpu("kvscope_gpu_activation_peak_bytes")
_TOTAL = gpu("kvscope_gpu_memory_total_bytes")
_OTHERS = gpu("kvscope_gpu_memory_component_bytes", component="other_processes")
_NO_GPU = "No card is read here. On Kubernetes, add components/nvml to the pod, or DCGM's exporter."


def _part(component: str) -> str:
    return total(gpu("kvscope_gpu_memory_component_bytes", component=component))


def row() -> Row:
    return Row(
        200,
        "Every byte of the cards",
        [
            graph(
                201,
                "Where did the memory go?",
                "Every byte of the card; the stack ends exactly at the line. Blue: this server. "
                "Red: other processes. Orange: owned by no process that can be named. Grey: free. "
                "What grew before the trouble is the culprit. Several cards, or servers that see "
                "the same one: their sum; choose a server and a GPU above.",
                BYTES,
                *(Q(_part(part), name) for part, name in limits.MEMORY_NAMES.items()),
                Q(f"2^20 * {total(dcgm('memory_used_mebibytes:max'))}", "in use, by DCGM"),
                Q(f"2^20 * {total(dcgm('memory_free_mebibytes:max'))}", "free, by DCGM"),
                Q(total(_TOTAL), "total"),
                stacked=True,
                lines=("total",),
                colours={
                    limits.MEMORY_NAMES.get(part, part): colour
                    for part, colour in limits.MEMORY_COLOURS.items()
                },
                low=None,
                height=10,
                span=24,
                right=True,
                calcs=("lastNotNull",),
                when_absent=_NO_GPU,
            ),
            rows(
                203,
                "Cards",
                "One line for each card and server, the least room first. Room is what a step can "
                "still take beyond the largest so far: begin where it is orange.",
                Q(worst(_TOTAL, BY_GPU), "total"),
                Q(worst(gpu("kvscope_gpu_memory_used_ratio"), BY_GPU), "used"),
                Q(worst(_HEADROOM, BY_GPU), "headroom"),
                Q(worst(_PEAK, BY_GPU), "peak"),
                Q(worst(gpu_room(), BY_GPU), "room"),
                Q(worst(_OTHERS, BY_GPU), "others"),
                columns={
                    "room": Column("Room", BYTES, limits.ROOM_AFTER_PEAK_BYTES, width=105),
                    "node": Column("Node"),
                    "instance": Column("Server"),
                    "gpu": Column("GPU", width=60),
                    "headroom": Column("Headroom", BYTES, width=105),
                    "peak": Column("Largest step", BYTES, width=115),
                    "others": Column("Other processes", BYTES, width=140),
                    "used": Column("In use", RATIO, width=85),
                    "total": Column("Memory", BYTES, width=105),
                },
                height=5,
                when_absent=_NO_GPU,
                least_first=("Room",),
            ),
        ],
    )
