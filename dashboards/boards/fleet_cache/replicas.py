"""Fleet cache: replica against replica."""

from dashboards.boards.fleet_cache.figures import BY_REPLICA, NO_FLEET, REPLICA_LEGEND, SPACE
from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.links import PREFIX_CACHE, to_dashboard
from dashboards.kit.panels import RATIO, TOKENS_PER_SECOND, Q, graph
from dashboards.kit.queries import RATE_WINDOW, WHOLE_RANGE, total
from dashboards.kit.tables import Column, rows
from kvscope_monitoring.formulas import share
from kvscope_monitoring.selectors import rate

_TOKENS = "kvscope_fleet_replica_prefix_tokens_total"


def _tokens(step: str, window: str) -> str:
    return total(rate(_TOKENS, window, SPACE, step=step), BY_REPLICA)


def _lost(window: str) -> str:
    asked = _tokens("asked", window)
    return share(f"({_tokens('best', window)} - {_tokens('own', window)})", asked)


def row() -> Row:
    own = share(_tokens("own", RATE_WINDOW), _tokens("asked", RATE_WINDOW))
    return Row(
        300,
        "Which replica?",
        [
            rows(
                301,
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
                span=14,
                height=9,
                when_absent=NO_FLEET,
                worst_first=("Routing",),
            ),
            graph(
                302,
                "Found by the replica itself",
                "Share of its tokens that each replica finds in its own pool. Replicas of one "
                "model behind one router should be alike; one that falls was restarted, or gets "
                "other requests than before.",
                RATIO,
                *outstanding(own, REPLICA_LEGEND, by=BY_REPLICA, lowest=True, rank="avg"),
                high=1,
                span=10,
                height=9,
                calcs=("lastNotNull", "mean"),
                when_absent=NO_FLEET,
            ),
        ],
    )
