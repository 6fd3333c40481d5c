"""One row of the catalogue: everything there is to know about a metric, as data."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

from kvscope_events.vocabulary import ServerKind

Kind = Literal["gauge", "counter", "histogram", "summary", "info"]
"""A summary is a histogram without buckets: only its sum and count."""
Detail = Literal["lean", "full"]
"""A page with what rules, boards and answers need, or with everything."""
Labels = dict[str, tuple[str, ...] | None]
"""Labels and their closed sets of values; None: constant for the engine, or set by hardware."""

ENGINE: Labels = {"model_name": None, "engine": None}
"""The labels of every engine-level family."""
DEVICE: Labels = {"gpu": None, "uuid": None}
"""The labels of every device-level family: NVML's index, and the UUID, which never changes."""
_MEASURES = ("", "seconds", "bytes", "ratio", "celsius", "watts", "hertz", "joules")
"""Units of measured or computed values; all others are units of counted things."""
_OTEL_UNITS = {
    "": "",
    "seconds": "s",
    "bytes": "By",
    "ratio": "1",
    "celsius": "Cel",
    "watts": "W",
    "joules": "J",
    "hertz": "Hz",
    "batches": "{batch}",
    "losses": "{loss}",
    "processes": "{process}",
    "retries": "{retry}",
}
"""Any other unit counts things, and is written in braces, in the singular."""
MOST = 2.0**53
"""Beyond every value: 9 petabytes, 285 million years. A float no longer counts from here on."""
MAX_HELP = 159
"""Characters: a page repeats the help at every scrape, and tools show it in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A declared family; `collect` fills it, documentation and tests read it."""

    name: str
    """The name in the text format: a counter's ends in `_total`, an info's in `_info`."""
    kind: Kind
    help: str
    """Sentences, or a noun phrase with a full stop; at most `MAX_HELP` characters."""
    unit: str
    """Plural base unit; empty where the value has none."""
    group: str
    """A key of `catalogue.GROUPS`."""
    notes: str = ""
    """Text for the documentation beyond the help."""
    labels: Labels = field(default_factory=lambda: dict(ENGINE))
    least: float | None = 0.0
    """The smallest possible value; None: any."""
    within: str = ""
    """A family that is never smaller: compared by equal labels, or with its only series."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, without +Inf."""
    detail: Detail = "lean"
    """The leanest page that has the family."""
    lean_buckets: tuple[float, ...] | None = None
    """Buckets of a lean page: for each of these, the largest bound up to it. None: all of them."""
    lean_values: Labels = field(default_factory=dict)
    """Series of a lean page: only those with these values of the label."""
    lean_without: tuple[str, ...] = ()
    """Labels that a lean page lacks: counters are sums over them, gauges the largest value. No
    series of such a counter may go while others stay, or the sum would fall."""
    otel_name: str = ""
    """Instrument name in OpenTelemetry; empty: not exported there."""
    aliases: tuple[str, ...] = ()
    """Nearest names on other servers; the definitions may differ."""
    events: tuple[str, ...] = ()
    """The events that a source must report, all of them, for the family to be known.

    Empty if the family is not read from an engine's events. PoolCreated stands for PoolSnapshot as
    well: a source reports both or neither.
    """
    counted: tuple[str, ...] = ()
    """The events of a counted pool from which the family is known as well; empty: it needs blocks
    with numbers, or has no need of blocks at all.
    """
    servers: tuple[ServerKind, ...] = ()
    """Kinds of servers whose events cover the family's whole meaning; empty: every kind that
    reports the events.
    """

    def __post_init__(self) -> None:
        if len(self.help) > MAX_HELP:
            raise ValueError(f"{self.name}: help is longer than {MAX_HELP}: move some to notes")
        if self.buckets and self.kind != "histogram":
            raise ValueError(f"{self.name}: only a histogram has buckets")
        if list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"{self.name}: buckets must increase")

    @property
    def otel_unit(self) -> str:
        """The unit in OpenTelemetry."""
        if self.otel_name == "hw.status":
            return "1"
        return _OTEL_UNITS.get(self.unit, f"{{{self.unit.removesuffix('s')}}}")

    @property
    def family(self) -> str:
        """Name of the family in OpenMetrics: without the suffix that its samples carry."""
        if self.kind == "counter":
            return self.name.removesuffix("_total")
        return self.name.removesuffix("_info") if self.kind == "info" else self.name

    def is_observable(self, tells: Collection[str], server: ServerKind | None) -> bool:
        """Whether a server that reports these events provides the family; None: it has not
        announced any yet.
        """
        if self.servers and server not in self.servers:
            return False
        told = set(tells)
        return told.issuperset(self.events) or (
            bool(self.counted) and told.issuperset(self.counted)
        )

    def lean_bounds(self, bounds: Iterable[float]) -> tuple[float, ...]:
        """The bounds that a lean page has of a histogram's."""
        known = sorted(bounds)
        if self.lean_buckets is None:
            return tuple(known)
        found = {max((b for b in known if b <= each), default=None) for each in self.lean_buckets}
        return tuple(bound for bound in known if bound in found)

    def can_be(self, value: float) -> bool:
        """Whether a value is possible; not whether it is right."""
        if not abs(value) < MOST or (self.unit == "ratio" and value > 1):
            return False
        return self.least is None or value >= self.least

    @property
    def counts(self) -> bool:
        """Whether it counts things, so that its values are integers."""
        return self.unit not in _MEASURES

    @property
    def closed_labels(self) -> dict[str, tuple[str, ...]]:
        """The labels whose values are enumerated here."""
        return {label: values for label, values in self.labels.items() if values is not None}
