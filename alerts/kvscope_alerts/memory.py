"""Alerts about device memory and host memory."""

from kvscope_alerts.paging import graded
from kvscope_alerts.rule import COUNT, ENGINE, GPU, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import HOST_GROWS_MINUTES, NEIGHBOUR_GREW_BYTES
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import series
from kvscope_monitoring.thresholds import HOST_USED_SHARE

_DEVICE = ("instance", "uuid")


def memory_groups(timing: Timing, scope: Scope) -> list[Group]:
    return [
        Group(
            name="kvscope-device-memory",
            rules=[_headroom(), _retries(timing), *_happened(timing), _neighbour(timing, scope)],
        ),
        Group(name="kvscope-host-memory", rules=[*_host(timing)]),
    ]


def _headroom() -> Alert:
    return Alert(
        name="KvscopeDeviceOomRisk",
        severity="warning",
        topic="device-memory",
        expr=f"{series('kvscope_gpu_memory_headroom_bytes')}"
        f" < {series('kvscope_gpu_activation_peak_bytes')}",
        wait="1m",
        keep="2m",
        summary="A GPU has less memory left than a step has needed before.",
        description=f"The next allocation on {GPU} can get {{{{ $value | humanize1024 }}}}B, less "
        "than the largest step took beyond weights and KV pool: the next one as large runs out "
        "of device memory.",
        board="kvscope-memory",
        by=_DEVICE,
    )


def _retries(timing: Timing) -> Alert:
    retries = series("kvscope_gpu_torch_alloc_retries_total")
    return Alert(
        name="KvscopeDeviceAllocationRetries",
        severity="warning",
        topic="device-memory",
        expr=f"increase({retries}[{timing.range('5m')}]) > 0",
        wait="10s",
        summary="Allocations on a GPU succeed only after torch has emptied its cache.",
        description=f"About {COUNT} allocations on {GPU} failed at first in "
        "the last five minutes and succeeded after torch had returned its cache: the device is "
        "full.",
        board="kvscope-memory",
        by=_DEVICE,
    )


def _happened(timing: Timing) -> tuple[Alert, Alert]:
    family = "kvscope_engine_oom_events_total"
    window = timing.range("5m")
    retried = f"increase({series(family, action='retried')}[{window}])"
    gave_up = f"increase({series(family, action='gave_up')}[{window}])"
    return (
        Alert(
            name="KvscopeDeviceOomRetried",
            severity="warning",
            topic="device-memory",
            expr=f"sum without (action) ({retried}) > 0",
            wait="10s",
            summary="Steps ran out of device memory and were tried again, smaller.",
            description=f"About {COUNT} steps of {ENGINE} ran out of device "
            "memory in the last five minutes. No request was lost, but the engine works in "
            "smaller steps.",
            board="kvscope-memory",
        ),
        Alert(
            name="KvscopeDeviceOom",
            severity="warning",  # one huge prompt; many failed requests page by themselves
            topic="device-memory",
            expr=f"sum without (action) ({gave_up}) > 0",
            wait="10s",
            summary="Requests failed because the device ran out of memory.",
            description=f"{ENGINE} ran out of device memory about {COUNT} "
            "times in the last five minutes with a step that could not be made smaller: its "
            "requests ended with an error.",
            board="kvscope-memory",
        ),
    )


def _neighbour(timing: Timing, scope: Scope) -> Alert:
    others = series("kvscope_gpu_process_memory_bytes", owner="other")
    own = series("kvscope_gpu_torch_reserved_bytes")
    grown = f"{others} - min_over_time({others}[{timing.range('30m')}])"
    return Alert(
        name="KvscopeForeignProcessGrew",
        severity="warning",
        topic="device-memory",
        expr=f"max without (owner) ({grown}) > {NEIGHBOUR_GREW_BYTES}\n"
        f"and on ({scope.server}, uuid) {own}",  # on other cards, all processes are others
        wait="1m",
        summary="Another process takes memory of a GPU that serves a model.",
        description=f"Processes on {GPU} that are not the server's have grown by "
        "{{ $value | humanize1024 }}B within half an hour. The server's next allocation may fail.",
        board="kvscope-memory",
        by=_DEVICE,
    )


def _host(timing: Timing) -> tuple[Alert, Alert]:
    used = series("kvscope_host_memory_unreclaimable_bytes")
    limit = series("kvscope_host_memory_limit_bytes")
    ahead = timing.seconds(f"{HOST_GROWS_MINUTES}m")
    growth = f"{ahead:g} * deriv({used}[{timing.range('10m')}])"
    soon = f"({timing.last(used)} + {growth} > {timing.last(limit)})"
    alert = Alert(
        name="KvscopeHostOomRisk",
        severity="critical",
        topic="host-memory",
        expr=f"{formulas.host_used_share(last=timing.last)} > {HOST_USED_SHARE}",
        wait="30s",
        keep="2m",
        summary="A server is close to the memory limit at which the kernel kills it.",
        description=f"{ENGINE} uses {{{{ $value | humanizePercentage }}}} of the host memory "
        "that its control group allows. At the limit the kernel kills the process.",
        board="kvscope-memory",
    )
    return graded(alert, f"and {soon}", f"unless {soon}")
