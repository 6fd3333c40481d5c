"""Overview: the table of engines, including those that no longer answer."""

from dashboards.kit import pressure
from dashboards.kit import thresholds as limits
from dashboards.kit.levels import FIRST_TOKEN, budget_used, used
from dashboards.kit.links import KV_POOL, PREFIX_CACHE, WHY_OF_ROW, to_engine_of_row
from dashboards.kit.panels import COUNT, RATIO, SECONDS, TOKENS_PER_SECOND, Panel, Q
from dashboards.kit.queries import (
    BY_ENGINE,
    ENGINE,
    RATE_WINDOW,
    SERVER,
    TARGET,
    TILE_WINDOW,
    every_engine,
    quantile,
    rate,
    recent,
    seen,
    series,
    total,
    up_for,
    worst,
)
from dashboards.kit.tables import Column, rows
from kvscope_monitoring import formulas, identity

_OLDEST = worst(series("kvscope_requests_oldest_wait_seconds"), BY_ENGINE)


def _where(condition: str) -> str:
    return f"group by ({BY_ENGINE}) ({condition})"


def _state(state: str) -> str:
    return f"{series('kvscope_server_state', SERVER, state=state)} == 1"


def _loading() -> str:
    """Servers without an engine yet have rows as well."""
    return f"{_state('expected')} or {_state('loading')}"


def _api_burn(by: str) -> str:
    """Times the rate that the budget allows, of what an API fails in front of its engines."""
    failed = formulas.api_failures(TILE_WINDOW, f"by ({by})", ENGINE)
    judged = formulas.judged_requests(TILE_WINDOW, f"by ({by})", ENGINE)
    return budget_used(formulas.share(failed, judged), "$answered")


def verdict() -> str:
    """The worst problem of each engine, as a number of limits.ENGINE_VERDICTS."""
    burn = used(TILE_WINDOW, BY_ENGINE)
    server = f"{TARGET}, {identity.MODEL}"
    _, (used_up, _), (pages, _) = limits.BURN_RATE
    stalled = limits.STEP_AGE_SECONDS[2][0]
    cases = {
        6: f"({seen(every_engine())}) and on ({TARGET}) (up == 0 or {_state('gone')})",
        5: f"({formulas.stalled(selector=ENGINE)}) > {stalled}",
        4: f"{burn['first token']} >= {pages:g} or {burn['answered']} >= {pages:g} "
        f"or {every_engine()} and on ({server}) ({_api_burn(server)} >= {pages:g})",
        3: f"{series('kvscope_engine_ready')} == 0 or {_loading()}",
        2: f"{burn['first token']} >= {used_up:g} or {_OLDEST} > ${{ttft:text}}",
        1: pressure.crowded(),
        0: every_engine(),
    }
    return "\nor ".join(f"{code:g} * {_where(which)}" for code, which in cases.items())


def table() -> Panel:
    recomputed = total(rate("kvscope_preemption_recomputed_tokens_total"), BY_ENGINE)
    hits = formulas.hit_ratio(RATE_WINDOW, f"by ({BY_ENGINE})", ENGINE)
    return rows(
        202,
        "Engines",
        "One line for each engine, the worst first; click a model for its KV pool, a hit ratio for "
        "its prefix cache, a server for the cause of its trouble (those of a sidecar have no "
        "address: kvscope why SIDECAR --target SERVER). silent: its server does not answer "
        "Prometheus. stalled: work, but no step. slow: first tokens or errors break a promise at "
        "the rate that pages. loading: it "
        "takes no requests yet. at risk: a promise is being broken slowly, or a request has waited "
        "longer than it allows. pressure: its pool is full, and requests wait for it. First token: "
        "the slowest 5 % wait longer. An engine that has been up for less time than its "
        "neighbours, without anybody having restarted it, has crashed: look at the end of its log.",
        Q(verdict(), "verdict"),
        Q(worst(series("kvscope_kv_active_ratio"), BY_ENGINE), "pool"),
        Q(total(series("kvscope_requests", state="running"), BY_ENGINE), "running"),
        Q(total(series("kvscope_requests", state=("waiting", "swapped")), BY_ENGINE), "waiting"),
        Q(recent(quantile(0.95, FIRST_TOKEN, BY_ENGINE)), "ttft"),
        Q(hits, "hits"),
        Q(f"round({recomputed})", "recomputed"),
        Q(worst(pressure.exhaustion(), BY_ENGINE), "exhaustion"),
        Q(up_for(every_engine()), "up"),
        Q(_OLDEST, "oldest"),
        columns={
            "verdict": Column("State", meanings=limits.ENGINE_VERDICTS, width=85),
            "model_name": Column("Model", link=to_engine_of_row("KV pool", KV_POOL), least=100),
            "instance": Column("Server", link=WHY_OF_ROW, least=130),
            "engine": Column("Engine", width=65),
            "waiting": Column("Waiting", COUNT, width=75),
            "oldest": Column("Oldest wait", SECONDS, width=115),
            "ttft": Column("First token", SECONDS, width=90),
            "running": Column("Running", COUNT, width=75),
            "pool": Column("Pool", RATIO, width=70),
            "exhaustion": Column(
                "P(full in 60 s)", RATIO, limits.EXHAUSTION_PROBABILITY, width=110
            ),
            "recomputed": Column("Recomputed", TOKENS_PER_SECOND, width=100),
            "hits": Column(
                "Hit ratio",
                RATIO,
                link=to_engine_of_row("Prefix cache", PREFIX_CACHE),
                width=75,
            ),
            "up": Column("Up for", SECONDS, width=90),
        },
        height=8,
        worst_first=("State", "Oldest wait"),
    )
