"""Thresholds of panels: bounds with their colours, and the reason for each bound.

Bounds that a rule compares with as well come from `monitoring/kvscope_monitoring/thresholds.py`,
reasons included.

A panel turns orange where someone should look and red where users are hurt. Panels whose good
value depends on the workload (hit ratio, throughput) have no thresholds: a colour would be a guess.
"""

from kvscope_monitoring import thresholds as shared
from kvscope_monitoring.objectives import FAST

GREEN, ORANGE, RED, NEUTRAL = "green", "orange", "red", "text"

Steps = tuple[tuple[float | None, str], ...]
"""Bounds and colours from the lowest; the first has no lower bound."""


def rising(orange: float, red: float) -> Steps:
    """Thresholds of a value that is worse the larger it is."""
    return ((None, GREEN), (orange, ORANGE), (red, RED))


def falling(red: float, orange: float) -> Steps:
    """Thresholds of a value that is worse the smaller it is."""
    return ((None, RED), (red, ORANGE), (orange, GREEN))


def limit_lines(steps: Steps) -> Steps:
    """The steps as lines of a graph: Grafana draws a line in the colour of the step that begins at
    it. If low is bad, the verdict is about the area below the line, which has to give it its
    colour.
    """
    colours = [colour for _, colour in steps]
    if colours[-1] != GREEN:
        return steps
    bounds = [bound for bound, _ in steps[1:]]
    return ((None, NEUTRAL), *zip(bounds, colours[:-1], strict=True))


PLAIN: Steps = ((None, NEUTRAL),)
"""No judgement, and the colour of text: blue would look like one."""

NONE_IS_GOOD: Steps = ((None, GREEN), (0.5, RED))
"""For counts of which a single one is too many; below one, because increase() extrapolates."""

SOME_ARE_WORTH_A_LOOK: Steps = ((None, GREEN), (0.5, ORANGE))
"""For counts that do no harm by themselves: a preemption, a firing warning, a waiting request."""

POOL_USAGE = rising(shared.POOL_SATURATED, 0.98)
"""Share of the usable blocks that sequences reference. At 98 % the next decode step of a full batch
fills the pool (one block for each sixteenth sequence, at blocks of 16)."""

FLEET_FULL: Steps = ((None, GREEN), (shared.FLEET_FULL, ORANGE))
"""Share of its time that a process spends on folding."""

FULL = 0.95
"""Share of the usable blocks above which a pool counts as full: one that preempts moves between 0.9
and 1, since each preemption returns all blocks of a request."""
NEVER_A_FAULT: Steps = ((None, GREEN),)
UNJUDGED: Steps = ((None, "transparent"),)
"""For one figure among others that are judged."""
ALWAYS_A_FAULT: Steps = ((None, RED),)
ALWAYS_WORTH_A_LOOK: Steps = ((None, ORANGE),)
"""For figures that exist, or have that name, in only one of two states. A full pool is in the first
state while no request waits for it: under load one of many engines is always full.
"""

SECONDS_TO_EXHAUSTION = falling(*sorted(shared.EXHAUSTION_SECONDS))

EXHAUSTION_PROBABILITY: Steps = (
    *((None, GREEN), (0.1, "yellow")),
    (shared.EXHAUSTION_PROBABILITY, ORANGE),
)
"""For any horizon. Green only while the risk is low. Never red: users are hurt only by waiting,
which has limits of its own."""

REGRETTED_SHARE: Steps = ((None, GREEN), (shared.REGRETTED_SHARE, ORANGE))
"""Never red, for the same reason."""

FLEET_LOSS: Steps = ((None, GREEN), (shared.FLEET_LOSS, ORANGE))
"""Never red, for the same reason."""

WHATIF_ERROR: Steps = ((None, GREEN), (shared.WHATIF_ERROR, ORANGE))

RECOMPUTED_SHARE = rising(shared.RECOMPUTED_NOTICEABLE, shared.RECOMPUTED_SHARE)

TOKENS_A_SECOND = falling(2, 10)
"""Tokens a second for one reader: ten is a brisk reader's pace, two is visibly halting, and the
default limit."""

AT_LEAST_ONE: Steps = ((None, RED), (0.5, GREEN))
"""For counts of which zero is too few."""

BUDGET_USED = rising(0.75, 1.0)
"""Share of an error budget. At 1 the promise is broken; with a quarter left, leave risky changes
for later."""

BURN_RATE = rising(1.0, FAST.pairs[0].factor)
"""Multiple of the rate that uses exactly the budget: at 14.4 a month's budget is gone in two days,
which is where alerts page."""

FULL_FLEET = 0.70
"""Mean active share of all pools of a model. Requests do not spread evenly: at this mean, single
pools are full part of the time."""
FLEET_USAGE: Steps = ((None, GREEN), (FULL_FLEET, ORANGE))
DAYS_LEFT = falling(14, 45)
"""Days. A replica on existing hardware takes hours; new hardware takes weeks."""

STEP_AGE_SECONDS = rising(10, shared.STEP_AGE_SECONDS)
"""Seconds with work but without a step; orange already after a few times the longest real one."""

ROOM_AFTER_PEAK_BYTES: Steps = ((None, ORANGE), (2**30, GREEN))
"""Headroom minus the largest step so far. Below 0, the next step of that size fails or is retried
smaller; users are hurt when one gives up, which is another figure. 1 GiB is about what another
process takes when it merely opens a context and loads its kernels."""

HOST_USED_SHARE = rising(0.80, shared.HOST_USED_SHARE)

GPU_CELSIUS = rising(80, 87)
"""Data-centre cards slow down at 83 to 90 °C, by model."""

CLOCKS_HELD_BACK = {0: ("no", GREEN), 1: ("yes", ORANGE), 2: ("at the power limit", "#55606e")}
"""The last is normal under full load."""

LAG_SECONDS = rising(1.0, 5.0)
"""Age of the oldest queued batch. The queue holds about four seconds of a busy engine's batches;
beyond five, batches are dropped."""

ENGINE_VERDICTS = {
    6: ("silent", RED),
    5: ("stalled", RED),
    4: ("slow", RED),
    3: ("loading", ORANGE),
    2: ("at risk", ORANGE),
    1: ("pressure", ORANGE),
    0: ("OK", GREEN),
}
"""The worst problem of an engine, worst first."""

HEARD = {0: ("silent", RED), 1: ("OK", GREEN)}
"""Meanings of kvscope_source_up."""

KNOWN = {0: ("unknown", ORANGE), 1: ("known", GREEN)}
"""Meanings of kvscope_source_state_known: batches were lost, or the first snapshot has not come."""

BLOCK_COLOURS = {
    "active": "blue",
    "cached": "light-blue",
    "free": "#55606e",
    "reserved": "dark-purple",
    "usable": "text",
    "capacity": "text",
}
"""Blocks by state: saturated is in use, pale can be taken, grey is empty."""

MEMORY_COLOURS = {
    "weights": "dark-blue",
    "kv_pool": "blue",
    "torch_live_other": "light-blue",
    "torch_pending": "super-light-blue",
    "torch_cached": "super-light-purple",
    "non_torch": "purple",
    "server_process": "semi-dark-blue",
    "other_processes": "red",
    "unattributed": "orange",
    "unsplit": "dark-yellow",
    "driver_reserved": "dark-purple",
    "free": "#55606e",
    "total": "text",
}
"""Components of a card: blue is the server's, red and orange are unwanted, grey is empty."""

MEMORY_NAMES = {
    "weights": "weights",
    "kv_pool": "KV pool",
    "torch_live_other": "activations",
    "torch_pending": "freed, still in use",
    "torch_cached": "freed, kept by torch",
    "non_torch": "CUDA and NCCL",
    "server_process": "this server",
    "other_processes": "other processes",
    "unattributed": "owner unknown",
    "unsplit": "not reported apart",
    "driver_reserved": "driver",
    "free": "free",
}
"""Words for them, in the order of the stack."""

MISS_COLOURS = {
    "hit": "green",
    "cold": "#55606e",
    "partial": "light-blue",
    "unreachable": "purple",
    "vetoed": "dark-purple",
    "evicted": "orange",
    "forgotten": "super-light-yellow",
    "cause unknown": "dark-yellow",
}
"""Queried blocks: only `evicted`, `unreachable` and `vetoed` ones could have been hits; for
`forgotten` ones that is not known."""

LOSS_COLOURS = {
    "found": "green",
    "routing": "orange",
    "fetching": "purple",
    "capacity": "blue",
    "new content": "#55606e",
}
"""Tokens that a fleet's caches found, and the causes of the rest; no cache helps against new
content."""

ANSWER_COLOURS = {
    "2xx": "green",
    "3xx": "light-blue",
    "4xx": "yellow",
    "429": "orange",
    "5xx": "red",
    "left": "purple",
}
"""Answers of an API server by class of status."""

PHASE_COLOURS = {
    "queue": "orange",
    "prefill": "light-blue",
    "decode": "blue",
    "whole request": "text",
}
"""Parts of a request's time: blue is work, orange is waiting."""

END_COLOURS = {
    "stop": "blue",
    "stop_string_or_abort": "semi-dark-blue",
    "length": "light-blue",
    "abort": "orange",
    "error": "red",
    "refused": "dark-red",
    "other 5xx": "semi-dark-red",
}
"""Ends of requests: blue is as intended, as far as the engine knows, the others are not."""

SERVICE_VERDICTS = {
    4: ("not served", RED),
    3: ("fails", RED),
    2: ("slow", RED),
    1: ("at risk", ORANGE),
    0: ("OK", GREEN),
}
"""Verdicts for the users of a model."""

SEVERITIES = {3: ("critical", "red"), 2: ("warning", "orange"), 1: ("info", "blue")}
"""Names and colours of severities by rank; by name, info would sort before warning."""
