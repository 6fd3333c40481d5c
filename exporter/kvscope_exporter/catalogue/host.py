"""Host: memory of the engine's processes, and of the control group whose limit can kill them."""

from kvscope_exporter.catalogue.metric import Metric


def _host(
    name: str, help: str, *, aliases: tuple[str, ...] = (), events: tuple[str, ...] = ()
) -> Metric:
    return Metric(
        name=f"kvscope_host_memory_{name}_bytes",
        kind="gauge",
        help=help,
        unit="bytes",
        group="host",
        detail="lean" if name in ("limit", "unreclaimable") else "full",
        otel_name=f"kvscope.host.memory.{name}",
        aliases=aliases,
        events=events,
    )


HOST = (
    _host(
        "resident",
        "Resident memory of the engine's process; where workers report as well, of all of them.",
        aliases=("process_resident_memory_bytes",),
    ),
    _host(
        "pinned",
        "Pinned host memory that torch holds in the engine's processes.",
        events=("DeviceMemorySampled",),
    ),
    _host(
        "limit",
        "Memory limit of the engine's control group; absent without a limit.",
    ),
    _host("usage", "Memory that the control group with that limit uses, file cache included."),
    _host(
        "unreclaimable",
        "Control group memory without file cache; at the limit the kernel kills a process.",
    ),
)
