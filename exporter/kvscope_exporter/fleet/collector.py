"""Reads a fleet into families."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from kvscope_exporter.catalogue.fleet import OWN_STEPS, REPLICA_STATES, STEPS
from kvscope_exporter.catalogue.metric import Detail
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.families import Families
from kvscope_exporter.fleet.fleet import Fleet
from kvscope_exporter.fleet.member import Member
from kvscope_exporter.fleet.replica import Space
from kvscope_exporter.targets.exposition import negotiate


class FleetCollector(Collector):
    """The families of one fleet; a name space that counts no replica shows only its sums."""

    def __init__(self, fleet: Fleet, members: Callable[[], Sequence[Member]], clock: Clock) -> None:
        self._fleet = fleet
        self._members = members
        self._families = Families({}, clock)

    def collect(self) -> Iterable[Family]:
        yield from self._fleet.read(self._spaces)
        yield from self._replicas()
        families, members = self._families, self._members()
        yield families.table(
            "kvscope_fleet_sidecar_up", {(member.name,): member.is_up for member in members}
        )
        yield families.table(
            "kvscope_fleet_sidecar_errors_total",
            {
                (member.name, kind): count
                for member in members
                for kind, count in member.errors.items()
            },
        )
        contradictions = self._fleet.contradictions
        yield families.table(
            "kvscope_fleet_contradictions_total",
            {(member.name,): contradictions.get(member.name, 0) for member in members},
        )
        yield families.single("kvscope_fleet_fold_seconds_total", self._fleet.spent_ns / 1e9)

    def _spaces(self, spaces: Sequence[Space]) -> list[Family]:
        families = self._families
        counted = [space for space in spaces if space.replicas]
        return [
            families.table(
                "kvscope_fleet_prefix_tokens_total",
                {
                    (*_labels(space), step): blocks * space.block_size
                    for space in spaces
                    for step, blocks in zip(STEPS, space.waterfall.totals, strict=True)
                },
            ),
            families.table(
                "kvscope_fleet_tier_hit_tokens_total",
                {
                    (*_labels(space), str(size)): blocks * space.block_size
                    for space in spaces
                    for size, blocks in space.waterfall.asked.hits_by_size()
                },
            ),
            families.table(
                "kvscope_fleet_tier_size_blocks",
                {(str(size),): size for space in spaces for size in space.waterfall.asked.sizes},
            ),
            families.table(
                "kvscope_fleet_pool_blocks",
                {_labels(space): space.pool_blocks for space in counted},
            ),
            families.table(
                "kvscope_fleet_block_tokens",
                {_labels(space): space.block_size for space in spaces},
            ),
            families.table(
                "kvscope_fleet_block_bytes",
                {
                    _labels(space): space.bytes_per_block
                    for space in spaces
                    if space.bytes_per_block is not None
                },
            ),
            families.table(
                "kvscope_fleet_name_spaces",
                {
                    (model,): number
                    for model, number in Counter(space.model_name for space in counted).items()
                },
            ),
        ]

    def _replicas(self) -> Iterable[Family]:
        listed = self._fleet.replicas()
        states: Counter[str] = Counter(replica.state for replica in listed)
        yield self._families.column(
            "kvscope_fleet_replicas", {state: states[state] for state in REPLICA_STATES}
        )
        yield self._families.table(
            "kvscope_fleet_replica_prefix_tokens_total",
            {
                (replica.model_name, *replica.key, step): (
                    getattr(replica.steps, step) * replica.block_size
                )
                for replica in listed
                if replica.state in ("counted", "unknown") and replica.block_size
                for step in OWN_STEPS
            },
        )


class FleetPage:
    """The page of a fleet process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def render(self, accept: str | None = None, detail: Detail | None = None) -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics if `accept` names it, otherwise text.

        detail: it has one page for all.
        """
        encode, content_type = negotiate(accept or "")
        return encode(self._registry.collect()), content_type


def _labels(space: Space) -> tuple[str, str]:
    return space.model_name, space.name_space[:12]
