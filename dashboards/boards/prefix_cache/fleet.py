"""Prefix cache: where does a fleet lose hits? From the page of `kvscope fleet`."""

from dashboards.boards.prefix_cache import fleet_tier as tier
from dashboards.boards.prefix_cache.fleet_figures import (
    BY_REPLICA,
    BY_SPACE,
    NO_FLEET,
    PROCESS,
    SPACE,
    reached,
)
from dashboards.kit import thresholds as limits
from dashboards.kit.bars import bars
from dashboards.kit.frame import Row
from dashboards.kit.links import PREFIX_CACHE, to_dashboard
from dashboards.kit.panels import COUNT, RATIO, TOKENS_PER_SECOND, Panel, Q, numbers
from dashboards.kit.queries import WHOLE_RANGE, series, total
from dashboards.kit.tables import Column, rows
from kvscope_monitoring import fleet, selectors
from kvscope_monitoring.fleet import CAPACITY, CAUSES, FETCHING, NEW, ROUTING
from kvscope_monitoring.formulas import share

_STEPS = {
    "found": ("own", "found"),
    "on one replica": ("best", ROUTING),
    "on some replica": ("anywhere", FETCHING),
    "asked for before": ("seen", CAPACITY),
    "asked for": ("asked", NEW),
}
"""Steps by name, and what lies between each and the one above it."""


_TOKENS = "kvscope_fleet_replica_prefix_tokens_total"


def _tokens(step: str, window: str) -> str:
    return total(selectors.rate(_TOKENS, window, SPACE, step=step), BY_REPLICA)


def _lost(window: str) -> str:
    asked = _tokens("asked", window)
    return share(f"({_tokens('best', window)} - {_tokens('own', window)})", asked)


def row() -> Row:
    return Row(
        900,
        "Whose fault are the misses?  All replicas as one cache, by kvscope fleet",
        [_bars(), _by_model(), tier.picture(), tier.table(), _replicas(), _left_out()],
    )


def _bars() -> Panel:
    return bars(
        901,
        "The waterfall",
        "Shares of the prompt tokens asked for, in full blocks at the first lookup of each "
        "request. found: by the replica that got the request. on one replica: a router that knows "
        "the caches would have found them. on some replica: fetching from peers would "
        "have. asked for before: large enough pools, or a shared tier, would have. The rest is "
        "new, and no cache helps.",
        RATIO,
        *(Q(reached(step), name) for name, (step, _) in _STEPS.items()),
        colours={name: limits.LOSS_COLOURS[cause] for name, (_, cause) in _STEPS.items()},
        high=1,
        span=10,
        when_absent="no fleet",
    )


def _by_model() -> Panel:
    grouping = f"by ({BY_SPACE})"
    return rows(
        902,
        "The waterfall by model",
        "The same for each model, and for each set of its replicas whose names of blocks can be "
        "compared: two lines of one model are caches that are never merged.",
        Q(fleet.reached("own", WHOLE_RANGE, grouping, SPACE), "found"),
        *(Q(fleet.lost(cause, WHOLE_RANGE, grouping, SPACE), cause) for cause in CAUSES),
        Q(fleet.tokens("asked", WHOLE_RANGE, grouping, SPACE), "asked"),
        columns={
            "model_name": Column(
                "Model", least=80, link=to_dashboard("Prefix cache", PREFIX_CACHE)
            ),
            "name_space": Column("Names", width=115),
            "found": Column("Found", RATIO, width=70),
            "routing": Column("Routing", RATIO, steps=limits.FLEET_LOSS, width=75),
            "fetching": Column("Fetching", RATIO, steps=limits.FLEET_LOSS, width=80),
            "capacity": Column("Capacity", RATIO, steps=limits.FLEET_LOSS, width=80),
            "new content": Column("New", RATIO, width=70),
            "asked": Column("Asked for", TOKENS_PER_SECOND, width=95, decimals=1),
        },
        span=14,
        height=9,
        when_absent=NO_FLEET,
        worst_first=("Asked for",),
    )


def _replicas() -> Panel:
    return rows(
        906,
        "Replica against replica  (time range on screen)",
        "Shares of the tokens that each replica was asked for: what it found itself, "
        "what one replica held, and the difference, which the router lost. All "
        "replicas lose alike: the router does not know the caches. One loses much more: "
        "it is new, or was restarted, and gets what others hold.",
        Q(
            share(_tokens("own", WHOLE_RANGE), _tokens("asked", WHOLE_RANGE)),
            "own",
        ),
        Q(
            share(_tokens("best", WHOLE_RANGE), _tokens("asked", WHOLE_RANGE)),
            "best",
        ),
        Q(_lost(WHOLE_RANGE), "lost"),
        Q(_tokens("asked", WHOLE_RANGE), "asked"),
        columns={
            "model_name": Column("Model", link=to_dashboard("Prefix cache", PREFIX_CACHE)),
            "sidecar": Column("Sidecar"),
            "server": Column("Server", width=100),
            "engine": Column("Engine", width=65),
            "own": Column("Found", RATIO, width=75),
            "best": Column("Best replica", RATIO, width=100),
            "lost": Column("Routing", RATIO, steps=limits.FLEET_LOSS, width=80),
            "asked": Column("Asked for", TOKENS_PER_SECOND, width=100, decimals=1),
        },
        span=18,
        height=8,
        when_absent=NO_FLEET,
        worst_first=("Routing",),
    )


def _left_out() -> Panel:
    return numbers(
        907,
        "Left out? Must be 0",
        "unknown: replicas whose content is not known, after a start or lost batches; "
        "until it is, best and anywhere are lower bounds. incomparable: their server does "
        "not say what names of blocks depend on. doubled: two sidecars watch one engine. "
        "`/api/fleet` has the reason of each. sidecars: those that do not answer.",
        COUNT,
        *(
            Q(total(series("kvscope_fleet_replicas", PROCESS, state=state)), state)
            for state in ("unknown", "incomparable", "doubled")
        ),
        Q(f"sum(1 - {series('kvscope_fleet_sidecar_up', PROCESS)})", "sidecars"),
        steps=limits.SOME_ARE_WORTH_A_LOOK,
        span=6,
        height=8,
        when_absent="no fleet",
    )
