"""Alerts about device memory and host memory."""

from kvscope_alerts.rule import COUNT, ENGINE, GPU, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import HOST_GROWS_MINUTES, NEIGHBOUR_GREW_BYTES
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import series
from kvscope_monitoring.thresholds import HOST_USED_SHARE


def memory_groups(timing: Timing, scope: Scope) -> list[Group]:
    return [
        Group(name="kvscope-device-memory", rules=[*_tight(timing, scope)]),
        Group(name="kvscope-host-memory", rules=[_host(timing)]),
    ]


def _tight(timing: Timing, scope: Scope) -> list[Alert]:
    minutes, same = timing.range("5m"), f"on ({scope.server}, uuid)"
    headroom = series("kvscope_gpu_memory_headroom_bytes")
    peak = series("kvscope_gpu_activation_peak_bytes")
    retries = series("kvscope_gpu_torch_alloc_retries_total")
    failed = series("kvscope_engine_oom_events_total", action=("retried", "gave_up"))
    others = series("kvscope_gpu_process_memory_bytes", owner="other")
    grown = f"{others} - min_over_time({others}[{timing.range('30m')}])"
    device = ("instance", "uuid")

    def one(
        sign: str,
        expr: str,
        wait: str,
        description: str,
        by: tuple[str, ...] = device,
        keep: str | None = None,
    ) -> Alert:
        return Alert(
            name="KvscopeDeviceMemoryTight",
            severity="warning",  # one huge prompt; many failed requests page by themselves
            topic="device-memory",
            expr=expr,
            wait=wait,
            keep=keep,
            summary="A GPU that serves a model is running out of memory.",
            description=description,
            board="kvscope-memory",
            by=by,
            labels={"sign": sign},
        )

    return [
        one(
            "headroom",
            f"{headroom} < {peak}",
            "1m",
            f"The next allocation on {GPU} can get {{{{ $value | humanize1024 }}}}B, less than the "
            "largest step took beyond weights and KV pool: the next one as large runs out of "
            "device memory.",
            keep="2m",
        ),
        one(
            "retries",
            f"increase({retries}[{minutes}]) > 0",
            "10s",
            f"About {COUNT} allocations on {GPU} failed at first in the last five minutes and "
            "succeeded after torch had returned its cache: the device is full.",
        ),
        one(
            "oom",
            f"increase({failed}[{minutes}]) > 0",
            "10s",
            f"About {COUNT} steps of {ENGINE} ran out of device memory in the last five minutes"
            '{{ if eq $labels.action "retried" }} and were tried again, smaller: no request was '
            "lost{{ else }} and could not be made smaller: their requests ended with an error"
            "{{ end }}.",
            ("instance", "model_name", "engine"),
        ),
        one(
            "neighbour",
            f"max without (owner) ({grown}) > {NEIGHBOUR_GREW_BYTES}\n"
            f"and {same} {series('kvscope_gpu_torch_reserved_bytes')}",  # elsewhere all are others
            "1m",
            f"Processes on {GPU} that are not the server's have grown by "
            "{{ $value | humanize1024 }}B within half an hour. The server's next allocation may "
            "fail.",
        ),
    ]


def _host(timing: Timing) -> Alert:
    """Only while it grows: a pinned pool that was given 96 % of the limit stays there."""
    used = series("kvscope_host_memory_unreclaimable_bytes")
    limit = series("kvscope_host_memory_limit_bytes")
    ahead = timing.seconds(f"{HOST_GROWS_MINUTES}m")
    growth = f"{ahead:g} * deriv({used}[{timing.range('10m')}])"
    return Alert(
        name="KvscopeHostOomRisk",
        severity="critical",
        topic="host-memory",
        expr=f"({formulas.host_used_share(last=timing.last)} > {HOST_USED_SHARE})\n"
        f"and ({timing.last(used)} + {growth} > {timing.last(limit)})",
        wait="30s",
        keep="2m",
        summary="A server grows to the memory limit at which the kernel kills it.",
        description=f"{ENGINE} uses {{{{ $value | humanizePercentage }}}} of the host memory "
        f"that its control group allows, and reaches the limit within {HOST_GROWS_MINUTES} "
        "minutes if it grows on. At the limit the kernel kills the process.",
        board="kvscope-memory",
    )
