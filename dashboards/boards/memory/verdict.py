"""Memory, first row: will it run out?"""

from dashboards.kit import pressure
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.links import KV_POOL, to_dashboard
from dashboards.kit.panels import BYTES, COUNT, RATIO, Q, numbers
from dashboards.kit.queries import (
    ENGINE,
    GPU,
    TARGET,
    WHOLE_RANGE,
    gpu,
    gpu_room,
    of_chosen,
    over_range,
    total,
    worst,
)
from monitoring import formulas

_HEADROOM = gpu("kvscope_gpu_memory_headroom_bytes")
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
                "GPU: room left",
                "Memory that the next allocation can get, less the largest step so far, on the GPU "
                "where that is least. Red: the next step as large fails. Lower "
                "--gpu-memory-utilization, or find who grew below.",
                BYTES,
                Q(f"min({gpu_room()}) or min({_HEADROOM})", ""),
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
                Q(total(of_chosen(over_range(_RETRIES, GPU), WHOLE_RANGE)), ""),
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                decimals=0,
                when_absent="no torch on a GPU",
            ),
            numbers(
                103,
                "GPU: out of memory",
                "Steps that ran out of device memory in the time range on screen. retried: with a "
                "smaller step, and no request was lost. gave up: its requests ended with an error. "
                "Not 0: see the alert's runbook, and 'Where did the memory go?' at that moment.",
                COUNT,
                Q(total(over_range(_OOMS, action="retried")), "retried"),
                Q(total(over_range(_OOMS, action="gave_up")), "gave up"),
                steps=limits.NONE_IS_GOOD,
                judged={"retried": limits.SOME_ARE_WORTH_A_LOOK},
                decimals=0,
                when_absent="not told",
            ),
            numbers(
                104,
                "Other processes",
                "Memory of other processes on a GPU that a server uses, where that is largest. It "
                "should be 0: `nvidia-smi` names them; move them away.",
                BYTES,
                Q(worst(f"{_OTHERS} and on ({TARGET}, uuid) {_OWN}"), ""),
                steps=((None, limits.GREEN), (2**28, limits.ORANGE)),
                when_absent="not known",
            ),
            numbers(
                105,
                "Pool: active share",
                "Share of the usable blocks that sequences reference, in the engine where that is "
                "highest. A full pool is no error. Orange: requests wait for it, or were "
                "preempted; the KV pool dashboard says what that costs.",
                RATIO,
                *pressure.fullest_pool(),
                steps=limits.NEVER_A_FAULT,
                judged=pressure.JUDGED,
                link=to_dashboard("KV pool", KV_POOL),
            ),
            numbers(
                106,
                "Host: used share",
                "Host memory of the control group over its limit, without file cache that can be "
                "dropped. At 100 % the kernel kills the server without a word in its log. Raise "
                "the limit, or look below for what grows.",
                RATIO,
                Q(worst(formulas.host_used_share(ENGINE)), ""),
                steps=limits.HOST_USED_SHARE,
                when_absent="no limit",
            ),
        ],
    )
