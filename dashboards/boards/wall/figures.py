"""Wall display: its figures, for everybody together or by model."""

from dashboards.kit.queries import (
    ENGINE,
    RATE_WINDOW,
    every_engine,
    mean,
    quantile,
    series,
    silent_servers,
    total,
)
from monitoring import formulas

_READY = series("kvscope_engine_ready")


def ready(by: str = "") -> str:
    return total(_READY, by)


def not_up() -> str:
    """Engines that take no requests now, and servers that do not answer at all."""
    silent = silent_servers(every_engine())
    return f"({total(f'1 - {_READY}')} or vector(0)) + ({silent} or vector(0))"


def first_token(q: float, by: str = "") -> str:
    return quantile(q, "kvscope_time_to_first_token_seconds", by)


def speed(by: str = "") -> str:
    """Tokens a second that one reader gets."""
    return f"1 / ({mean('kvscope_inter_token_latency_seconds', by)} > 0)"


def succeeded(by: str = "") -> str:
    return f"1 - {formulas.error_share(RATE_WINDOW, f'by ({by})', ENGINE)}"


def waiting(by: str = "") -> str:
    return total(series("kvscope_requests", state=("waiting", "swapped")), by)


def queue_seconds(by: str = "") -> str:
    """How long those whose turn has come had waited, on average."""
    return mean("kvscope_request_queue_seconds", by)
