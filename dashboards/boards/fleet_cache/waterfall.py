"""Fleet cache, first row: where are hits lost?"""

from dashboards.boards.fleet_cache.figures import BY_SPACE, NO_FLEET, SPACE, lost, reached
from dashboards.kit import thresholds as limits
from dashboards.kit.bars import bars
from dashboards.kit.frame import Row
from dashboards.kit.links import OVERVIEW, PREFIX_CACHE, to_dashboard
from dashboards.kit.panels import RATIO, TOKENS_PER_SECOND, Panel, Q, graph, numbers
from dashboards.kit.queries import RATE_WINDOW, WHOLE_RANGE
from dashboards.kit.tables import Column, rows
from kvscope_monitoring import fleet
from kvscope_monitoring.fleet import CAPACITY, CAUSES, FETCHING, NEW, ROUTING

_STEPS = {
    "found": ("own", "found"),
    "on one replica": ("best", ROUTING),
    "on some replica": ("anywhere", FETCHING),
    "asked for before": ("seen", CAPACITY),
    "asked for": ("asked", NEW),
}
"""Steps by name, and what lies between each and the one above it."""
_SENTENCES = {
    ROUTING: "routing loses up to",
    FETCHING: "not fetching from other replicas loses up to",
    CAPACITY: "the size of the pools loses",
}
_NEGLIGIBLE = 0.01
"""Share of the tokens below which more hits are not worth a sentence."""


def row() -> Row:
    return Row(
        100,
        "Whose fault are the misses?  (time range on screen)",
        [_bars(), _sentence(), _losses(), _history(), _by_model()],
    )


def _bars() -> Panel:
    return bars(
        101,
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
        link=to_dashboard("Overview", OVERVIEW),
    )


def _sentence() -> Panel:
    """The largest of three losses, unless none is worth a sentence."""
    possible = f"({reached('seen')} - {reached('own')})"
    sentences = [_said(f"{possible} < {_NEGLIGIBLE}", "the rest is new; not found is")]
    for cause, sentence in _SENTENCES.items():
        others = "".join(
            f"\nand {lost(cause)} >= {lost(other)}" for other in _SENTENCES if other != cause
        )
        worth_it = f"\nand {possible} >= {_NEGLIGIBLE}"
        sentences.append(_said(f"{lost(cause)}{others}{worth_it}", sentence))
    return numbers(
        102,
        "In a sentence",
        "Of 100 prompt tokens asked for, how many the largest cause loses. Each request is judged "
        "by itself: what another router, or a tier, finds in the long run depends on what it "
        "leaves behind, so this is an upper bound. `kvscope whatif --replicas` replays a "
        "recording under another policy. Orange from a tenth on, as for regret.",
        RATIO,
        Q("\nor ".join(sentences), "{{sentence}}"),
        steps=limits.FLEET_LOSS,
        span=8,
        height=9,
        when_absent="no fleet",
    )


def _said(expr: str, sentence: str) -> str:
    return f'label_replace({expr}, "sentence", "{sentence}", "", "")'


def _losses() -> Panel:
    return numbers(
        103,
        "Lost by",
        "What lies between two bars on the left. routing: another replica held it; use a router "
        "that knows the caches. fetching: in pieces on several replicas; fetch from peers. "
        "capacity: it was evicted everywhere; larger pools, or a shared tier. new content: never "
        "asked for before; nothing helps.",
        RATIO,
        *(Q(lost(cause), cause) for cause in CAUSES),
        steps=limits.UNJUDGED,
        span=6,
        height=9,
        when_absent="no fleet",
    )


def _history() -> Panel:
    each = {cause: fleet.lost(cause, RATE_WINDOW, selector=SPACE) for cause in CAUSES}
    return graph(
        104,
        "Per 100 tokens asked for",
        "The same over time; adds up to 100 %. Orange grows and grey does not: the router has "
        "changed, or lost its view of the caches. Grey grows: the prompts have changed.",
        RATIO,
        Q(fleet.reached("own", RATE_WINDOW, selector=SPACE), "found"),
        *(Q(expr, cause) for cause, expr in each.items()),
        stacked=True,
        colours=limits.LOSS_COLOURS,
        high=1,
        span=10,
        height=9,
        listed=True,
        when_absent=NO_FLEET,
    )


def _by_model() -> Panel:
    grouping = f"by ({BY_SPACE})"
    return rows(
        105,
        "By model",
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
