"""Attributes of OpenTelemetry from the labels of a family: the conventions' names, or ours.

`kvscope.*` keeps the labels of the page, so the same selectors work on both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.catalogue import Metric
from kvscope_events.vocabulary import ServerKind

Labels = Mapping[str, str]
Attributes = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts for attributes beyond labels."""

    providers: Mapping[tuple[str, str], ServerKind] = field(default_factory=dict)
    """Kinds of servers by model_name and engine."""
    devices: Mapping[str, Labels] = field(default_factory=dict)
    """Labels of kvscope_gpu_info by UUID."""


_CONSTANT: dict[str, Attributes] = {
    "hw.gpu.utilization": {"hw.gpu.task": "general"},
    "hw.errors": {"hw.type": "gpu"},
    "hw.status": {"hw.type": "gpu"},
    "hw.temperature": {"hw.type": "gpu"},
    "hw.power": {"hw.type": "gpu"},
    "hw.energy": {"hw.type": "gpu"},
}
"""Attributes that the conventions require beyond the device's own."""
_DIRECTIONS = {"sent": "transmit", "received": "receive"}


def attributes_of(row: Metric, labels: Labels, facts: Facts) -> Attributes:
    """The attributes of one point."""
    if row.otel_name.startswith("gen_ai."):
        return _gen_ai(labels, facts)
    if row.otel_name.startswith("hw."):
        return _hardware(row, labels, facts)
    return dict(labels)


def _gen_ai(labels: Labels, facts: Facts) -> Attributes:
    engine = labels.get("model_name", ""), labels.get("engine", "")
    attributes = {
        "gen_ai.operation.name": labels["operation"],
        "gen_ai.provider.name": facts.providers.get(engine, "other"),
        "gen_ai.request.model": engine[0],
        "engine": engine[1],
        "error.type": labels.get("error_type", ""),
    }
    return {name: value for name, value in attributes.items() if value}


def _hardware(row: Metric, labels: Labels, facts: Facts) -> Attributes:
    uuid = labels.get("uuid", "")
    device = facts.devices.get(uuid, {})
    attributes = {
        "hw.id": uuid,
        "hw.name": device.get("name", ""),
        "hw.vendor": "NVIDIA",
        "hw.driver_version": device.get("driver_version", ""),
        "network.io.direction": _DIRECTIONS.get(labels.get("direction", ""), ""),
        "error.type": labels.get("type", ""),
        **_CONSTANT.get(row.otel_name, {}),
    }
    return {name: value for name, value in attributes.items() if value}
