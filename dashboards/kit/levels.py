"""Service levels as the variables have them: the line of a promise, and what kept it."""

from dashboards.kit.panels import OBJECTIVE, Q
from dashboards.kit.queries import ENGINE, series, total
from monitoring.formulas import share

FIRST_TOKEN_OBJECTIVE = Q("vector($ttft)", OBJECTIVE)
TOKEN_GAP_OBJECTIVE = Q("vector($itl)", OBJECTIVE)


def budget_used(broken: str, objective: str) -> str:
    """Share of the error budget that is gone; above 1 the promise is broken.

    broken: share of what broke it. objective: a variable, percent of what has to keep it.
    """
    return f"round(({broken}) / (1 - {objective} / 100), 0.001)"


def late(name: str, limit: str, window: str, by: str = "", selector: str = ENGINE) -> str:
    """Share of a histogram's observations above a limit. limit: a variable, as `$ttft`.

    Prometheus 2 writes a whole bound as `5`, Prometheus 3 as `5.0`; the selector matches both.
    Rounded, because the difference leaves a rest where nothing is late.
    """
    bound = f'le=~"{limit}([.]0)?",{selector}'
    timely = total(f"rate({name}_bucket{{{bound}}}[{window}])", by)
    every = total(f"rate({series(f'{name}_count', selector)}[{window}])", by)
    return f"round(1 - {share(timely, every)}, 1e-6)"
