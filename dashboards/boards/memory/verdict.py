"""Memory, first row: will it run out?"""

from dashboards.boards.memory.hardware import faults, xids
from dashboards.boards.overview.verdict import gpu_room
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.links import MEMORY, to_dashboard
from dashboards.kit.panels import BYTES, COUNT, RATIO, Q, numbers
from dashboards.kit.queries import (
    ENGINE,
    GPU,
    TARGET,
    WHOLE_RANGE,
    gpu,
    of_chosen,
    over_range,
    total,
    worst,
)
from kvscope_monitoring import formulas

_OTHERS = gpu("kvscope_gpu_memory_component_bytes", component="other_processes")
_OWN = gpu("kvscope_gpu_torch_reserved_bytes")
"""Selects cards that the server uses: on any other card, all processes count as others."""
_RETRIES = "kvscope_gpu_torch_alloc_retries_total"
_OOMS = "kvscope_engine_oom_events_total"


def row() -> Row:
    return Row(
        100,
        "Will it run out?",
        [
            numbers(
                101,
                "GPU room",
                "Memory that the next allocation can get, less the largest step so far, on the "
                "GPU where this is least. Short by: the next step of that size fails, or is "
                "retried smaller. Red: steps failed. Lower --gpu-memory-utilization, or find "
                "below what grew.",
                BYTES,
                *gpu_room(),
                steps=limits.ROOM_AFTER_PEAK_BYTES,
                when_absent="not known",
            ),
            numbers(
                102,
                "GPU: near misses",
                "Allocations in the time range on screen that succeeded only after torch had given "
                "back its cache: the earliest sign of a full device. Not 0: act before the first "
                "error.",
                COUNT,
                Q(total(of_chosen(over_range(_RETRIES, GPU), WHOLE_RANGE)), "allocations"),
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                decimals=0,
                when_absent="no torch on a GPU",
            ),
            numbers(
                103,
                "GPU: out of memory",
                "Steps that ran out of device memory in the time range on screen. retried: with a "
                "smaller step, and no request was lost. gave up: their requests ended with an "
                "error. Not 0: see the alert's runbook, and 'Where did the memory go?' at that "
                "moment.",
                COUNT,
                Q(total(over_range(_OOMS, action="retried")), "retried"),
                Q(total(over_range(_OOMS, action="gave_up")), "gave up"),
                steps=limits.NONE_IS_GOOD,
                judged={"retried": limits.SOME_ARE_WORTH_A_LOOK},
                decimals=0,
                when_absent="not reported",
            ),
            numbers(
                104,
                "Other processes",
                "Memory of other processes on a GPU that a server uses, on the GPU where it is "
                "largest. It should be 0: `nvidia-smi` names them; move them away.",
                BYTES,
                Q(worst(f"{_OTHERS} and on ({TARGET}, uuid) {_OWN}"), ""),
                steps=((None, limits.GREEN), (2**28, limits.ORANGE)),
                when_absent="not known",
            ),
            numbers(
                105,
                "Hardware",
                "XIDs since the exporter started, and the faults of the hardware row below: cards "
                "that do not answer, memory rows that wait for a reset or could not be remapped. "
                "Not 0: open that row, and the alert's runbook.",
                COUNT,
                Q(xids(), "XIDs", limits.SOME_ARE_WORTH_A_LOOK),
                Q(faults(), "faults"),
                steps=limits.NONE_IS_GOOD,
                decimals=0,
                when_absent="no GPU",
                link=to_dashboard("GPU and driver faults", MEMORY, 601),
            ),
            numbers(
                106,
                "Host memory",
                "Host memory of the control group over its limit, without file cache that can be "
                "dropped. At 100 % the kernel kills the server without a line in its log. Raise "
                "the limit, or look below for what grows.",
                RATIO,
                Q(worst(formulas.host_used_share(ENGINE)), ""),
                steps=limits.HOST_USED_SHARE,
                when_absent="no limit set",
            ),
        ],
    )
