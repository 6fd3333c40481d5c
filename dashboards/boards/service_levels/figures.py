"""Service levels: the figures of its first row, for everyone together or by model."""

from dashboards.kit import thresholds as limits
from dashboards.kit.levels import used
from dashboards.kit.queries import (
    ENGINE,
    RATE_WINDOW,
    TILE_WINDOW,
    every_engine,
    every_part,
    mean,
    peak,
    quantile,
    series,
    silent_servers,
    total,
    worst,
)
from kvscope_monitoring import formulas

_READY = series("kvscope_engine_ready")


def ready(by: str = "") -> str:
    return total(_READY, by)


def not_up() -> str:
    """Engines that do not take requests now, and servers that do not answer at all."""
    silent = silent_servers(every_part())
    return f"({total(f'1 - {_READY}')} or vector(0)) + ({silent} or vector(0))"


def first_token(q: float, by: str = "") -> str:
    return quantile(q, "kvscope_time_to_first_token_seconds", by)


def speed(by: str = "") -> str:
    """Tokens a second that one reader gets."""
    return f"1 / ({mean('kvscope_inter_token_latency_seconds', by)} > 0)"


def succeeded(by: str = "", window: str = RATE_WINDOW) -> str:
    return f"1 - {formulas.error_share(window, f'by ({by})', ENGINE)}"


def oldest_wait(by: str = "") -> str:
    return worst(peak(series("kvscope_requests_oldest_wait_seconds")), by)


def verdict() -> str:
    """A verdict for the users of each model, as a number of limits.SERVICE_VERDICTS; the worst one
    over all places, and the worst four of many models."""
    by = "model_name"
    burn = {name: f"max by ({by}) ({expr})" for name, expr in used(TILE_WINDOW).items()}
    _, (used_up, _), (pages, _) = limits.BURN_RATE
    cases = {
        4: f"{ready(by)} == 0",
        3: f"{burn['answered']} >= {pages:g}",
        2: f"{burn['first token']} >= {pages:g}",
        1: " or ".join(f"{each} >= {used_up:g}" for each in burn.values()),
        0: every_engine(),
    }
    each = " or ".join(f"{code:g} * group by ({by}) ({which})" for code, which in cases.items())
    return f"topk(4, {each})"


def waiting(by: str = "") -> str:
    return total(series("kvscope_requests", state=("waiting", "swapped")), by)
