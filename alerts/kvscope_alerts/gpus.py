"""Alerts about GPUs, by our NVML or by DCGM's exporter."""

from collections.abc import Iterable

from kvscope_alerts import dcgm
from kvscope_alerts.paging import paged_below
from kvscope_alerts.recordings import GPUS, GPUS_SEEN, LAST_ANSWER
from kvscope_alerts.rule import COUNT, GPU, SERVER, Alert, Group, Severity, Topic
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import (
    HOT_CELSIUS,
    LINK_BUSY,
    LINK_SHARE,
    NVLINK_XIDS,
    SLOWED_SHARE,
    XIDS,
)
from kvscope_alerts.timing import Timing
from kvscope_monitoring.selectors import series

_DEGRADED = "A GPU has an error that does not stop it, or there is one GPU fewer."
_ASKS_FOR_RESET = "The GPU needs a reset or its machine a restart before results can be trusted."
_LOOK_AT_IT = (
    '{{ if eq $labels.xid "other" }}Its number is in the kernel\'s log, and what it asks for in '
    f'NVIDIA\'s catalogue of XIDs.{{{{ else if match "{"|".join(NVLINK_XIDS)}" $labels.xid }}}}'
    "It is an error of NVLink: whether it asks for a reset depends on its line in the kernel's log."
    "{{ else }}The process that caused it has ended or computes nonsense: look at it, restart it."
    "{{ end }}"
)
"""Remedy for an XID that is a warning."""


def gpu_groups(timing: Timing, scope: Scope, page_below: int) -> list[Group]:
    failed = paged_below(_failed(timing, scope), scope, page_below, "KvscopeGpuDegraded", _DEGRADED)
    rules = [*failed, *_degraded(timing, scope), *_slow(timing), _unread(scope)]
    return [
        Group(name="kvscope-gpu.rules", rules=[*dcgm.dcgm_records()]),
        Group(name="kvscope-gpu", rules=[*rules]),
    ]


def _alert(
    name: str,
    summary: str,
    topic: Topic,
    sign: str,
    expr: str,
    wait: str,
    description: str,
    *,
    severity: Severity = "warning",
    keep: str | None = None,
    by: tuple[str, ...] = ("instance", "uuid"),
) -> Alert:
    return Alert(
        name=f"Kvscope{name}",
        severity=severity,
        topic=topic,
        expr=expr,
        wait=wait,
        keep=keep,
        summary=summary,
        description=description,
        board="kvscope-memory",
        by=by,
        labels={"sign": sign} if sign else {},
    )


def _owned(expr: str, timing: Timing, scope: Scope) -> str:
    """The cards of the expression, with label `used_by` if the server's own engine uses them: then
    the engine is affected. A pod may see every card of its machine."""
    own = timing.last(series("kvscope_gpu_process_memory_bytes", owner="server"))
    torch = timing.last(series("kvscope_gpu_torch_reserved_bytes"))
    used = f"on ({scope.server}, uuid) ({own} > 0 or {torch} > 0)"
    own_cards = _used(f"{expr}\n  and {used}")
    return f"{own_cards}\nor ({expr} unless {used})"


def _used(expr: str) -> str:
    return f'label_replace(\n  {expr},\n  "used_by", "this server", "", ""\n)'


def _failed(timing: Timing, scope: Scope) -> list[Alert]:
    """An XID's age, since increase() misses the first event of a series. It fires until the
    exporter has seen a reset of the card."""
    xid = timing.last(series("kvscope_gpu_xid_last_age_seconds", xid=XIDS["critical"]))
    lost = f"{timing.last(series('kvscope_gpu_up'))} == 0"
    recovery = f"{timing.last(series('kvscope_gpu_recovery_action'))} > 0"

    def one(sign: str, expr: str, wait: str, description: str) -> Alert:
        summary = "A GPU has failed: it needs a reset, or does not answer."
        return _alert(
            *("GpuFailed", summary, "gpu", sign, expr, wait, description), severity="critical"
        )

    return [
        one(
            "xid",
            _owned(xid, timing, scope),
            "10s",
            f"XID {{{{ $labels.xid }}}} on {GPU}, {{{{ $value | humanizeDuration }}}} ago. "
            + _ASKS_FOR_RESET,
        ),
        one(
            "xid-dcgm",
            _used(_one_of(XIDS["critical"])),
            "10s",
            f"DCGM's last XID on {GPU} is {{{{ $value }}}}. {_ASKS_FOR_RESET}",
        ),
        one(
            "lost",
            _owned(lost, timing, scope),
            "30s",
            f"NVML gets no answer from {GPU}: it is lost or needs a reset.",
        ),
        one(
            "recovery",
            _owned(recovery, timing, scope),
            "30s",
            f"{GPU} asks for recovery action {{{{ $value }}}} (1 GPU reset, 2 node reboot, 3 drain "
            "of peers, 4 drain and reset, 5 IMEX recovery, 6 bus reset, 7 system reboot).",
        ),
    ]


def _one_of(xids: Iterable[str]) -> str:
    """DCGM's last XID of a card, if it is one of these."""
    return "(" + " or ".join(f"{dcgm.XID} == {xid}" for xid in xids if xid != "other") + ")"


def _degraded(timing: Timing, scope: Scope) -> list[Alert]:
    """Levels of errors, not increases: they may have existed at the first scrape. A card that is
    gone after a restart of the machine has no series that could show it; if a model needs it, its
    server does not become ready, or pages by itself."""
    xid = timing.last(series("kvscope_gpu_xid_last_age_seconds", xid=XIDS["warning"]))
    uncorrected = series("kvscope_gpu_ecc_errors_total", type="uncorrected")
    pending, failed = (series(f"kvscope_gpu_row_remap_{how}") for how in ("pending", "failed"))
    fewer = f"(max_over_time({GPUS}[{timing.range('6h')}]) - {GPUS} > 0)"

    def one(
        sign: str, expr: str, wait: str, said: str, by: tuple[str, ...] = ("instance", "uuid")
    ) -> Alert:
        return _alert("GpuDegraded", _DEGRADED, "gpu", sign, expr, wait, said, by=by)

    return [
        one(
            "xid-warning",
            f"{xid} < {timing.seconds('10m'):g}",
            "10s",
            f"XID {{{{ $labels.xid }}}} on {GPU}, {{{{ $value | humanizeDuration }}}} ago. "
            + _LOOK_AT_IT,
        ),
        one(
            "xid-dcgm-warning",
            f"{_one_of(XIDS['warning'])}\nunless {dcgm.XID} == {dcgm.XID} offset "
            f"{timing.range('10m')}",
            "10s",
            f"DCGM's last XID on {GPU} is {{{{ $value }}}}, since ten minutes ago or less. The "
            "process that caused it has ended or computes nonsense, or NVLink has an error: look "
            "at it, and at the kernel's log.",
        ),
        one(
            "ecc",
            f"max without (type) ({uncorrected}) > 0\nor {dcgm.UNCORRECTED} > 0",
            "10s",
            f"{GPU} has had {COUNT} uncorrected ECC errors since its driver was loaded.",
        ),
        one(
            "remap",
            f"2 * ({failed} == 1) or {pending} == 1\nor 2 * ({dcgm.REMAP_FAILED} == 1)",
            "10s",
            f"A faulty row of the memory of {GPU} {{{{ if eq $value 2.0 }}}}could not be replaced: "
            "the card has to go back to its vendor{{ else }}is to be replaced; until a reset it "
            "stays in use or its page is taken out{{ end }}.",
        ),
        one(
            "fewer",
            f"{fewer}\n+ on ({scope.server}) group_left (model_name) 0 * {LAST_ANSWER}",
            "5m",
            f"NVML lists {COUNT} GPUs fewer on {SERVER} than within the last six hours.",
            by=("instance",),
        ),
    ]


def _slow(timing: Timing) -> list[Alert]:
    """The share of the time, since the reasons come and go within seconds. The link's maximum of
    five minutes: that of a card with gaps in its work goes up and down."""
    window = timing.range("5m")
    reasons = ("sw_thermal", "hw_thermal", "hw_power_brake")
    active = series("kvscope_gpu_clocks_event_active", reason=reasons)
    ratio, busy = series("kvscope_gpu_pcie_link_ratio"), series("kvscope_gpu_utilization_ratio")

    def one(sign: str, expr: str, wait: str, said: str, keep: str | None = None) -> Alert:
        summary = "A GPU is slower than it should be: heat, its power supply or its PCIe link."
        return _alert("GpuSlow", summary, "gpu-slow", sign, expr, wait, said, keep=keep)

    return [
        one(
            "clocks",
            f"avg_over_time({active}[{window}]) > {SLOWED_SHARE}",
            "10s",
            f"{GPU} had lowered its clocks ({{{{ $labels.reason }}}}) for {{{{ $value | "
            "humanizePercentage }} of the last five minutes: tokens come slower.",
            "2m",
        ),
        one(
            "heat",
            f"min_over_time({dcgm.TEMPERATURE}[{window}]) >= {HOT_CELSIUS}",
            "10s",
            f"{GPU} has been at {{{{ $value }}}} degrees Celsius or above for five minutes, where "
            "it lowers its clocks: tokens come slower.",
            "2m",
        ),
        one(
            "link",
            f"max_over_time({ratio}[{window}]) < {LINK_SHARE}\n"
            f"and avg_over_time({busy}[{window}]) > {LINK_BUSY}",
            "5m",
            f"The PCIe link of {GPU} runs at {{{{ $value | humanizePercentage }}}} of the rate "
            "that the card and its slot allow: with fewer lanes, or as an older generation. "
            "Loading, swapping and offloading take longer.",
        ),
    ]


def _unread(scope: Scope) -> Alert:
    """Fires only if NVML worked within a week: a container without the driver's library, or a
    machine without GPUs, does not have NVML, which is not a fault."""
    return _alert(
        "GpuUnread",
        "NVML does not answer: nothing is known of a server's GPUs.",
        "gpu",
        "",
        f"{series('kvscope_gpu_nvml_up')} == 0\nand on ({scope.server}) {GPUS_SEEN} > 0",
        "1m",
        f"The exporter of {SERVER} gets no sample from NVML. Memory, health and processes of its "
        "GPUs are unknown, and alerts on them cannot fire.",
        by=("instance",),
    )
