"""The waterfall of a fleet's cache as PromQL: its steps, and what is lost between two of them.

The arguments are those of `kvscope_monitoring.formulas`. Shares are of the prompt tokens that were
asked for, in full blocks."""

from itertools import pairwise

from kvscope_exporter.catalogue.fleet import STEPS
from kvscope_monitoring.formulas import share
from kvscope_monitoring.selectors import rate

TOKENS = "kvscope_fleet_prefix_tokens_total"

CAUSES = ROUTING, FETCHING, CAPACITY, NEW = ("routing", "fetching", "capacity", "new content")
"""The causes of losses, in the order of the steps."""
_BETWEEN = dict(zip(CAUSES, pairwise(STEPS), strict=True))
"""The steps between which each takes effect."""


def tokens(step: str, window: str, grouping: str = "", selector: str = "") -> str:
    """Prompt tokens a second at a step."""
    each = rate(TOKENS, window, selector, step=step)
    return f"sum {grouping} ({each})" if grouping else f"sum({each})"


def reached(step: str, window: str, grouping: str = "", selector: str = "") -> str:
    """Tokens at a step over those asked for."""
    return share(
        tokens(step, window, grouping, selector), tokens("asked", window, grouping, selector)
    )


def lost(cause: str, window: str, grouping: str = "", selector: str = "") -> str:
    """Tokens lost by a cause, one of CAUSES, over those asked for."""
    lower, upper = (tokens(step, window, grouping, selector) for step in _BETWEEN[cause])
    return share(f"({upper}\n- {lower})", tokens("asked", window, grouping, selector))
