"""Host: memory of the server's process and of the group whose limit ends it."""

from exporter.catalogue.metric import Metric


def _host(name: str, help: str, aliases: tuple[str, ...] = ()) -> Metric:
    return Metric(
        name=f"kvscope_host_memory_{name}_bytes",
        kind="gauge",
        help=help,
        unit="bytes",
        group="host",
        otel_name=f"kvscope.host.memory.{name}",
        aliases=aliases,
    )


HOST = (
    _host(
        "resident",
        "Resident memory of the engine's process.",
        ("process_resident_memory_bytes",),
    ),
    _host("pinned", "Pinned host memory of torch in the engine's process."),
    _host("limit", "Memory limit of the control group with the least room; absent without one."),
    _host("usage", "Memory that this control group uses, file cache included."),
    _host(
        "working_set",
        "Usage of this control group without inactive file cache, as a kubelet counts.",
        ("container_memory_working_set_bytes",),
    ),
    _host(
        "unreclaimable",
        "Usage of this control group without any file cache: at the limit the kernel kills.",
    ),
)
