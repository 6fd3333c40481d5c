"""Service-level objectives and the burn rates that break them, for alerts and tiles.

Each number is declared only here, so that no tile is green while the same promise pages.
"""

from typing import Literal, NamedTuple

TTFT_SECONDS = 2.5
"""Default of every model; `--ttft` sets another for one model. A person notices one second and
reloads after five. It must be a bound of the histogram."""
TTFT_OBJECTIVE = 0.99
"""Share of the requests with a first token within that time."""
ITL_SECONDS = 0.5
"""Default of every model for the time between two tokens; `--itl` sets another for one model. Two
tokens a second are slower than anyone reads. It must be a bound of the histogram as well."""
ITL_OBJECTIVE = 0.99
"""Share of the tokens that come within that time after the one before."""
ERROR_OBJECTIVE = 0.999
"""Share of the requests that the server neither failed, in an engine or in front of it, nor refused
for lack of room; `--errors` sets another for one model. With 0.99, an hour in which an eighth of
them fails pages no one."""

BURN_MIN_BAD = 30
"""Fewest bad requests in the long window that page. Seven late prompts in an idle night
are one user's; they are a warning."""
BURN_MIN_BAD_TOKENS = 3000
"""The same for tokens: thirty answers of ordinary length."""
BURN_MIN_BAD_SHARE = 0.01
"""Fewest bad ones as a share of an hour's ordinary traffic, which is the mean of the last three
days. On a busy model thirty are a lost connection; an outage exceeds that within a minute or two,
even at night. With a larger share an objective of 99.9 % could be missed by far without a page."""
BURN_WARN_BAD = 5
"""Fewest bad requests that are a warning: fewer concern one user, whatever the ratio."""
BURN_WARN_BAD_TOKENS = 100
"""The same for tokens: an answer of ordinary length."""
FAILING_SHARE = 0.10
"""Share of a server's answers: a replica that fails one request of ten is broken, whatever the
model's other replicas do; the burn rates of the whole fleet may not notice."""
ORDINARY = "3d"
"""Window of the mean that counts as ordinary traffic: as long as the longest burn window."""


class Pair(NamedTuple):
    """All windows must burn: the long one shows that it matters, the short one that it is
    ongoing."""

    factor: float
    """Times the budget; at 1 it lasts for exactly 30 days."""
    long: str
    short: str
    now: str = ""
    """A third window, if the short one takes long to forget a failure that is over."""


class Pace(NamedTuple):
    """Window pairs of one severity share an alert, so they notify once."""

    severity: Literal["critical", "warning"]
    pairs: tuple[Pair, ...]


FAST = Pace("critical", (Pair(14.4, "1h", "5m"), Pair(6, "6h", "30m", "5m")))
SLOWLY = Pace("warning", (Pair(3, "1d", "2h"), Pair(1, "3d", "6h")))
"""The pairs of Google's SRE workbook: a 30-day budget is used up in 2, 5, 10 and 30 days. No page
continues for half an hour after a failure has ended.
"""
