"""Memory, first row: will it run out?"""

from dashboards.boards.memory.hardware import faults, xids
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.links import MEMORY, to_dashboard
from dashboards.kit.panels import BYTES, COUNT, RATIO, Q, numbers
from dashboards.kit.queries import (
    ENGINE,
    GPU,
    WHOLE_RANGE,
    added,
    dcgm,
    gpu,
    least_gpu_room,
    of_chosen,
    over_range,
    recent,
    series,
    total,
    worst,
)
from kvscope_monitoring import formulas

_OWN = gpu("kvscope_gpu_torch_reserved_bytes")
_RETRIES = "kvscope_gpu_torch_alloc_retries_total"
_OOMS = "kvscope_engine_oom_events_total"


def gpu_room() -> tuple[Q, Q, Q]:
    """Memory left, or missing: red only if steps failed for lack of it."""
    short = f"-{least_gpu_room()} > 0"
    gave_up = recent(added("kvscope_engine_oom_events_total", action="gave_up"))
    hurt = f"on () ({total(gave_up)} > 0)"
    return (
        Q(f"{least_gpu_room()} >= 0", "left"),
        Q(f"({short}) unless {hurt}", "short by", limits.ALWAYS_WORTH_A_LOOK),
        Q(f"({short}) and {hurt}", "short by", limits.ALWAYS_A_FAULT),
    )


def row() -> Row:
    host = worst(series("kvscope_host_memory_unreclaimable_bytes"))
    return Row(
        100,
        "Will it run out?",
        [
            numbers(
                101,
                "Room on the card",
                "left: memory that the next allocation can get, less the largest step so far, on "
                "the GPU where this is least. Short by: the next step of that size fails, or is "
                "retried smaller; lower --gpu-memory-utilization, or find below what grew. Red: "
                "steps failed. Without NVML in the pod (components/nvml) only these are known: "
                "free, by DCGM's exporter, and what torch holds.",
                BYTES,
                *gpu_room(),
                Q(f"2^20 * min({dcgm('memory_free_mebibytes:max')})", "free, by DCGM"),
                Q(worst(_OWN), "held by torch", limits.UNJUDGED),
                steps=limits.ROOM_AFTER_PEAK_BYTES,
                span=6,
                when_absent="no GPU",
            ),
            numbers(
                102,
                "Steps out of memory",
                "Steps that ran out of device memory in the time range on screen. retried: with a "
                "smaller step, and no request was lost. gave up: their requests ended with an "
                "error. Not 0: see the alert's runbook, and 'Where did the memory go?' at that "
                "moment.",
                COUNT,
                Q(total(over_range(_OOMS, action="retried")), "retried"),
                Q(total(over_range(_OOMS, action="gave_up")), "gave up"),
                steps=limits.NONE_IS_GOOD,
                judged={"retried": limits.SOME_ARE_WORTH_A_LOOK},
                span=6,
                decimals=0,
                when_absent="no engine",
            ),
            numbers(
                103,
                "Warnings of the card",
                "near misses: allocations in the time range on screen that succeeded only after "
                "torch had given back its cache, the earliest sign of a full device. XIDs: the "
                "driver's critical events, by NVML since the exporter started, or cards whose last "
                "one DCGM reports. faults: cards that do not answer, memory rows that could not "
                "be remapped. Not 0: open the row of the hardware, and the alert's runbook.",
                COUNT,
                Q(total(of_chosen(over_range(_RETRIES, GPU), WHOLE_RANGE)), "near misses"),
                Q(xids(), "XIDs"),
                Q(faults(), "faults", limits.NONE_IS_GOOD),
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                span=6,
                decimals=0,
                when_absent="no GPU",
                link=to_dashboard("GPU and driver faults", MEMORY, 601),
            ),
            numbers(
                104,
                "Host memory",
                "Host memory of the control group, without file cache that can be dropped, and its "
                "share of the limit if there is one. At 100 % the kernel kills the server without "
                "a line in its log. Raise the limit, or look below for what grows.",
                RATIO,
                Q(worst(formulas.host_used_share(ENGINE)), "of the limit"),
                Q(host, "in use", limits.UNJUDGED),
                units={"in use": BYTES},
                steps=limits.HOST_USED_SHARE,
                span=6,
                when_absent="no control group",
            ),
        ],
    )
