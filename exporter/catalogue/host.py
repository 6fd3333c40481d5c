"""Host: memory of the server's process and of the group whose limit ends it."""

from exporter.catalogue.metric import ENGINE, Metric

HOST = (
    Metric(
        name="kvscope_host_memory_bytes",
        kind="gauge",
        help="Host memory: resident and pinned of the server's process; limit, usage, "
        "working_set (usage less inactive file cache, as a kubelet counts) and unreclaimable (less "
        "all file cache: at the limit the kernel kills) of the control group with the least room. "
        "Absent: no limit, or not told.",
        unit="bytes",
        group="host",
        labels={
            **ENGINE,
            "kind": ("resident", "pinned", "limit", "usage", "working_set", "unreclaimable"),
        },
        otel_name="kvscope.host.memory",
        aliases=("process_resident_memory_bytes", "container_memory_working_set_bytes"),
        source=("DeviceMemorySampled",),
    ),
)
