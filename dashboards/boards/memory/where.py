"""Memory: where did the bytes of the card go?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import BYTES, RATIO, Q, graph
from dashboards.kit.queries import BY_GPU, gpu, gpu_room, total, worst
from dashboards.kit.tables import Column, rows

_FROM_BELOW = (
    ("weights",),
    ("kv_pool",),
    ("torch_live_other", "torch_pending", "torch_cached"),
    ("non_torch", "server_process"),
    ("other_processes", "unattributed", "unsplit"),
    ("driver_reserved",),
    ("free",),
)
"""Components in the order of the stack: a query each, because the stack follows the queries."""
_HEADROOM = gpu("kvscope_gpu_memory_headroom_bytes")
_PEAK = gpu("kvscope_gpu_activation_peak_bytes")
_TOTAL = gpu("kvscope_gpu_memory_total_bytes")
_OTHERS = gpu("kvscope_gpu_memory_component_bytes", component="other_processes")
_NO_GPU = "No GPU is read here: `kvscope doctor` says why."


def _parts(components: tuple[str, ...]) -> str:
    return total(gpu("kvscope_gpu_memory_component_bytes", component=components), "component")


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
                *(Q(_parts(parts), "{{component}}") for parts in _FROM_BELOW),
                Q(total(_TOTAL), "total"),
                stacked=True,
                lines=("total",),
                colours=limits.MEMORY_COLOURS,
                low=None,
                height=12,
                span=24,
                right=True,
                calcs=("lastNotNull",),
                when_absent=_NO_GPU,
            ),
            rows(
                203,
                "Cards",
                "One line for each card and server, the least room first. Room is what a step can "
                "still take beyond the largest so far: begin where a cell is red.",
                Q(worst(_TOTAL, BY_GPU), "total"),
                Q(worst(gpu("kvscope_gpu_memory_used_ratio"), BY_GPU), "used"),
                Q(worst(_HEADROOM, BY_GPU), "headroom"),
                Q(worst(_PEAK, BY_GPU), "peak"),
                Q(worst(gpu_room(), BY_GPU), "room"),
                Q(worst(_OTHERS, BY_GPU), "others"),
                columns={
                    "instance": Column("Server", width=150),
                    "gpu": Column("GPU", width=55),
                    "uuid": Column("UUID"),
                    "total": Column("Memory", BYTES, width=95),
                    "used": Column("In use", RATIO, width=80),
                    "headroom": Column("Headroom", BYTES, limits.HEADROOM_BYTES, width=95),
                    "peak": Column("Largest step", BYTES, width=105),
                    "room": Column("Room", BYTES, limits.ROOM_AFTER_PEAK_BYTES, width=95),
                    "others": Column("Other processes", BYTES, width=130),
                },
                height=7,
                when_absent=_NO_GPU,
                least_first=("Room",),
            ),
        ],
    )
