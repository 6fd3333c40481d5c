"""Host memory families of one engine: its process, and the control group that limits it."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from exporter.collect.families import Families
from exporter.machine.host_memory import HostMemory


def collect_host(
    families: Families, host: HostMemory, pinned_bytes: int | None
) -> Iterator[Family]:
    """Only what can be read on this host: an engine on another one has no such families."""
    for figure, value in (
        ("resident", host.resident),
        ("pinned", pinned_bytes),
        ("limit", host.limit),
        ("usage", host.usage),
        ("working_set", host.working_set),
        ("unreclaimable", host.unreclaimable),
    ):
        if value is not None:
            yield families.single(f"kvscope_host_memory_{figure}_bytes", value)
