"""Alerts about GPUs: XIDs, ECC, lost devices, slowed clocks, NVML."""

from dataclasses import replace

from kvscope_alerts.paging import paged_below
from kvscope_alerts.recordings import GPUS, GPUS_SEEN, LAST_ANSWER
from kvscope_alerts.rule import COUNT, GPU, SERVER, Alert, Group, Severity
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import LINK_BUSY, LINK_SHARE, NVLINK_XIDS, SLOWED_SHARE, XIDS
from kvscope_alerts.timing import Timing
from kvscope_monitoring.selectors import series

_DEVICE = ("instance", "uuid")
_LOOK_AT_IT = (
    '{{ if eq $labels.xid "other" }}Its number is in the kernel\'s log, and what it asks for in '
    f'NVIDIA\'s catalogue of XIDs.{{{{ else if match "{"|".join(NVLINK_XIDS)}" $labels.xid }}}}'
    "It is an error of NVLink: whether it asks for a reset depends on its line in the kernel's log."
    "{{ else }}The process that caused it has ended or computes nonsense: look at it, restart it."
    "{{ end }}"
)
"""Remedy for an XID that is a warning."""


def gpu_groups(timing: Timing, scope: Scope, page_below: int) -> list[Group]:
    def paged(alert: Alert) -> tuple[Alert, Alert]:
        return paged_below(
            replace(alert, expr=_owned(alert.expr, timing, scope)), scope, page_below
        )

    critical, *lesser = _xids(timing)
    return [
        Group(
            name="kvscope-gpu",
            rules=[
                *(*paged(critical), *lesser, *_ecc(), _slowdown(timing), _link(timing)),
                *(*paged(_lost(timing)), *paged(_recovery(timing))),
                _fewer(timing, scope),
                _nvml(scope),
            ],
        )
    ]


def _owned(expr: str, timing: Timing, scope: Scope) -> str:
    """The cards of the expression, with label `used_by` if the server's own engine uses them: then
    the engine is affected. A pod may see every card of its machine."""
    own = timing.last(series("kvscope_gpu_process_memory_bytes", owner="server"))
    torch = timing.last(series("kvscope_gpu_torch_reserved_bytes"))
    used = f"on ({scope.server}, uuid) ({own} > 0 or {torch} > 0)"
    return (
        f'label_replace(\n  {expr}\n  and {used},\n  "used_by", "this server", "", ""\n)\n'
        f"or ({expr} unless {used})"
    )


def _xids(timing: Timing) -> list[Alert]:
    """Uses the time of the last XID, since increase() misses the first event of a series.

    A critical one does not end after ten minutes: it fires until the exporter has seen a reset of
    the card.
    """
    texts: dict[Severity, tuple[str, str, str]] = {
        "critical": (
            "KvscopeXidCritical",
            "The driver reported an error after which a GPU needs a reset.",
            "The GPU needs a reset or its machine a restart before results can be trusted.",
        ),
        "warning": (
            "KvscopeXidWarning",
            "The driver reported a GPU error that has to be looked at.",
            _LOOK_AT_IT,
        ),
        "info": (
            "KvscopeXidInfo",
            "The driver reported an error of an application on a GPU.",
            "Nothing has to be done for the GPU itself.",
        ),
    }
    family = "kvscope_gpu_xid_last_age_seconds"
    return [
        Alert(
            name=alert,
            severity=severity,
            topic="gpu-errors",
            expr=timing.last(series(family, xid=XIDS[severity]))
            + ("" if severity == "critical" else f" < {timing.seconds('10m'):g}"),
            wait="10s",
            summary=summary,
            description=f"XID {{{{ $labels.xid }}}} on {GPU}, {{{{ $value | humanizeDuration }}}} "
            f"ago. {advice}",
            board="kvscope-memory",
            by=_DEVICE,
        )
        for severity, (alert, summary, advice) in texts.items()
    ]


def _ecc() -> list[Alert]:
    """Uses levels, not increases: errors may have existed at the first scrape."""
    uncorrected = series("kvscope_gpu_ecc_errors_total", type="uncorrected")
    return [
        Alert(
            name="KvscopeEccUncorrected",
            severity="warning",
            topic="gpu-memory",
            expr=f"max without (type) ({uncorrected}) > 0",
            wait="10s",
            summary="A GPU has had memory errors that could not be corrected.",
            description=f"{GPU} has had {COUNT} uncorrected ECC errors since "
            "its driver was loaded.",
            board="kvscope-memory",
            by=_DEVICE,
        ),
        Alert(
            name="KvscopeRowRemapPending",
            severity="warning",
            topic="gpu-memory",
            expr=f"{series('kvscope_gpu_row_remap_pending')} == 1",
            wait="10s",
            summary="A GPU needs a reset to replace a faulty row of memory.",
            description=f"A row of the memory of {GPU} is to be replaced; until a reset the "
            "faulty one stays in use or its page is taken out.",
            board="kvscope-memory",
            by=_DEVICE,
        ),
        Alert(
            name="KvscopeRowRemapFailed",
            severity="warning",
            topic="gpu-memory",
            expr=f"{series('kvscope_gpu_row_remap_failed')} == 1",
            wait="10s",
            summary="A GPU has no spare rows left for faulty memory.",
            description=f"A faulty row of the memory of {GPU} could not be replaced. The card has "
            "to go back to its vendor.",
            board="kvscope-memory",
            by=_DEVICE,
        ),
    ]


def _slowdown(timing: Timing) -> Alert:
    """Uses the share of the time, since the reasons come and go within seconds."""
    reasons = ("sw_thermal", "hw_thermal", "hw_power_brake")
    active = series("kvscope_gpu_clocks_event_active", reason=reasons)
    return Alert(
        name="KvscopeGpuSlowedDown",
        severity="warning",
        topic="gpu-clocks",
        expr=f"avg_over_time({active}[{timing.range('5m')}]) > {SLOWED_SHARE}",
        wait="10s",
        keep="2m",
        summary="A GPU runs slower because of heat or its power supply.",
        description=f"{GPU} had lowered its clocks ({{{{ $labels.reason }}}}) for "
        "{{ $value | humanizePercentage }} of the last five minutes: tokens come slower.",
        board="kvscope-memory",
        by=_DEVICE,
    )


def _link(timing: Timing) -> Alert:
    """Uses the maximum of five minutes: the link of a card with gaps in its work goes up and
    down."""
    window = timing.range("5m")
    ratio = series("kvscope_gpu_pcie_link_ratio")
    busy = series("kvscope_gpu_utilization_ratio")
    return Alert(
        name="KvscopeGpuLinkSlow",
        severity="warning",
        topic="gpu-link",
        expr=f"max_over_time({ratio}[{window}]) < {LINK_SHARE}\n"
        f"and avg_over_time({busy}[{window}]) > {LINK_BUSY}",
        wait="5m",
        summary="The PCIe link of a busy GPU is slower than the card and its slot allow.",
        description=f"The PCIe link of {GPU} runs at {{{{ $value | humanizePercentage }}}} of the "
        "rate that the card and its slot allow: with fewer lanes, or as an older generation. "
        "Loading, swapping and offloading take longer.",
        board="kvscope-memory",
        by=_DEVICE,
    )


def _lost(timing: Timing) -> Alert:
    return Alert(
        name="KvscopeGpuLost",
        severity="critical",
        topic="gpu",
        expr=f"{timing.last(series('kvscope_gpu_up'))} == 0",
        wait="30s",
        summary="A GPU does not answer.",
        description=f"NVML gets no answer from {GPU}: it is lost or needs a reset.",
        board="kvscope-memory",
        by=_DEVICE,
    )


def _recovery(timing: Timing) -> Alert:
    return Alert(
        name="KvscopeGpuNeedsRecovery",
        severity="critical",
        topic="gpu",
        expr=f"{timing.last(series('kvscope_gpu_recovery_action'))} > 0",
        wait="30s",
        summary="The driver asks for a recovery action on a GPU.",
        description=f"{GPU} asks for recovery action {{{{ $value }}}} (1 GPU reset, 2 node "
        "reboot, 3 drain of peers, 4 drain and reset, 5 IMEX recovery, 6 bus reset, 7 system "
        "reboot).",
        board="kvscope-memory",
        by=_DEVICE,
    )


def _fewer(timing: Timing, scope: Scope) -> Alert:
    """A card that is gone after a restart of the machine has no series that could show it. A
    warning: if a model needs the card, its server does not become ready, or pages by itself."""
    return Alert(
        name="KvscopeGpusFewer",
        severity="warning",
        topic="gpu",
        expr=f"(max_over_time({GPUS}[{timing.range('6h')}]) - {GPUS} > 0)\n"
        f"+ on ({scope.server}) group_left (model_name) 0 * {LAST_ANSWER}",
        wait="5m",
        summary="A server has fewer GPUs than before.",
        description=f"NVML lists {COUNT} GPUs fewer on {SERVER} than within the last six hours.",
        board="kvscope-memory",
        by=("instance",),
    )


def _nvml(scope: Scope) -> Alert:
    """Fires only if NVML worked within a week: a container without the driver's library, or a
    machine without GPUs, does not have NVML, which is not a fault."""
    return Alert(
        name="KvscopeNvmlDown",
        severity="warning",
        topic="gpu",
        expr=f"{series('kvscope_gpu_nvml_up')} == 0\nand on ({scope.server}) {GPUS_SEEN} > 0",
        wait="1m",
        summary="NVML does not answer: nothing is known of a server's GPUs.",
        description=f"The exporter of {SERVER} gets no sample from NVML. Memory, health and "
        "processes of its GPUs are unknown, and alerts on them cannot fire.",
        board="kvscope-memory",
        by=("instance",),
    )
