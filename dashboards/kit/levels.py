"""Service levels from the variables: the line of a promise, and how fast it is broken.

A tile and a table judge by the burn rate, as the alerts do: at 1 the budget is used exactly, and at
the rate that pages it is red. No other limit stands for the same promise.
"""

from dashboards.kit import thresholds as limits
from dashboards.kit.panels import OBJECTIVE, Q
from dashboards.kit.queries import BY_ENGINE, ENGINE, TILE_WINDOW, series, total, worst
from kvscope_monitoring import formulas, identity
from kvscope_monitoring.formulas import share

FIRST_TOKEN, TOKEN_GAP = (
    "kvscope_time_to_first_token_seconds",
    "kvscope_inter_token_latency_seconds",
)
_GAVE_UP = "kvscope_request_abandoned_seconds"

FIRST_TOKEN_OBJECTIVE = Q("vector(${ttft:text})", OBJECTIVE)
TOKEN_GAP_OBJECTIVE = Q("vector(${itl:text})", OBJECTIVE)

BY_SERVICE = identity.clause(*identity.SERVICE)
_USED, _PAGES = (bound for bound, _ in limits.BURN_RATE[1:])


def budget_used(broken: str, objective: str) -> str:
    """Share of the error budget that is gone, or multiple of the allowed rate; above 1 the promise
    is broken.

    broken: share that broke it. objective: a variable, the percentage that has to keep it.
    """
    return f"round(({broken}) / (1 - {objective} / 100), 0.001)"


def late(name: str, limit: str, window: str, by: str = "", selector: str = ENGINE) -> str:
    """Share of a histogram's observations above a limit. limit: a variable, such as `$ttft`.

    Rounded, because the difference leaves a remainder when nothing is late.
    """
    timely, every = _timely(name, limit, window, by, selector), _every(name, window, by, selector)
    return f"round(1 - {share(timely, every)}, 1e-6)"


def late_first_tokens(window: str, by: str = "", selector: str = ENGINE) -> str:
    """Share of the requests without a first token within `$ttft`, as the alert counts them: those
    that gave up after that time are late, too. Requests that are not reported, or without such a
    bound, are left out.
    """
    first = _every(FIRST_TOKEN, window, by, selector)
    soon = _timely(_GAVE_UP, "$ttft", window, by, selector)
    given_up = f"({_every(_GAVE_UP, window, by, selector)} - {soon} or 0 * {first})"
    late = f"({first} - {_timely(FIRST_TOKEN, '$ttft', window, by, selector)} + {given_up})"
    return f"round({share(late, f'({first} + {given_up})')}, 1e-6)"


def broken(window: str, by: str = BY_SERVICE) -> dict[str, str]:
    """Share that broke each promise."""
    errors = formulas.engine_error_share if by == BY_ENGINE else formulas.error_share
    return {
        "answered": errors(window, f"by ({by})", ENGINE),
        "first token": late_first_tokens(window, by),
        "next token": late(TOKEN_GAP, "$itl", window, by),
    }


def used(window: str, by: str = BY_SERVICE) -> dict[str, str]:
    """Share of each error budget that is gone; 1 is all of it."""
    return {
        name: budget_used(share, "$answered" if name == "answered" else "$objective")
        for name, share in broken(window, by).items()
    }


def judged_by_burn(value: str, burn: str, legend: str) -> tuple[Q, Q, Q]:
    """A number in the colour of its promise, as three queries of which one has a value: colours
    cannot follow variables. burn: one figure.
    """
    value = f"({value})\nand on () "
    return (
        Q(f"{value}({burn} < {_USED:g})", legend, limits.NEVER_A_FAULT),
        Q(f"{value}({burn} >= {_USED:g} < {_PAGES:g})", legend, limits.ALWAYS_WORTH_A_LOOK),
        Q(f"{value}({burn} >= {_PAGES:g})", legend, limits.ALWAYS_A_FAULT),
    )


def verdict(promise: str, legend: str) -> tuple[Q, Q, Q]:
    """The share that broke a promise in the window of tiles, for the worst model."""
    share, burn = broken(TILE_WINDOW)[promise], used(TILE_WINDOW)[promise]
    return judged_by_burn(worst(share), worst(burn), legend)


def _timely(name: str, limit: str, window: str, by: str, selector: str) -> str:
    """By the largest bound at or below the limit that a server's histogram has: its bucket has
    most. The value of the variable matches these bounds, its text is the limit."""
    bounds = f'le=~"{limit}",{selector}'
    return total(f"max without (le) (rate({name}_bucket{{{bounds}}}[{window}]))", by)


def _every(name: str, window: str, by: str, selector: str) -> str:
    return total(f"rate({series(f'{name}_count', selector)}[{window}])", by)
