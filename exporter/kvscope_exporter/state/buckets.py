"""Upper bounds of every histogram, in seconds or tokens: ours, vLLM's, OpenTelemetry's, unions.

vLLM's are all bounds of 0.32, since sums over servers need equal ones. Ours are only those that a
quantile or a threshold needs, since each bound is a series: a page stays below 600. A fold
observes into the union of the bounds that are shown, so one histogram serves two families; `+Inf`
is implied everywhere.
"""

from collections.abc import Iterable

FIRST_TOKEN_SECONDS = (
    *(0.1, 0.25, 0.5, 0.75, 1, 2.5, 5),
    *(7.5, 10, 15, 20, 30, 60, 600),
)
"""Reaches as far as the queue time, which is a part of it. Up to 10 s the bounds equal vLLM's,
since for an observed vLLM the family is read from its own page, and one objective has to hold for
both. With no bound between 10 and 30, a quantile could be 29 s although no request waits longer
than 20.
"""
INTER_TOKEN_SECONDS = (
    *(0.01, 0.02, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5),
    *(1, 2.5, 10, 120),
)
"""Dense where users notice; long enough for a preemption, which is one long sample."""
REQUEST_SECONDS = (1, 5, 10, 30, 60, 120, 600, 7200)
QUEUE_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 600)
ABANDONED_SECONDS = (1, 2.5, 5, 10, 60)
"""A rule judges by the first bound that is not below its limit."""
RESIDENCY_SECONDS = (1, 10, 60, 600, 3600)
"""For block ages: a pause in a conversation takes seconds to minutes, a cache remembers up to
hours.
"""
STEP_SECONDS = (0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 10)

VLLM_FIRST_TOKEN_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
VLLM_INTER_TOKEN_SECONDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80),
)
VLLM_REQUEST_SECONDS = (
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60),
    *(120, 240, 480, 960, 1920, 7680),
)
VLLM_ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
VLLM_REQUEST_TOKENS = tuple(step * 10**power for power in range(8) for step in (1, 2, 5))
"""A page shows those up to the model's longest sequence; see `up_to`."""
VLLM_RESIDENCY_SECONDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30),
    *(60, 120, 300, 600, 1200, 1800),
)

GEN_AI_REQUEST_SECONDS = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56),
    *(5.12, 10.24, 20.48, 40.96, 81.92),
)
"""OpenTelemetry's conventions for generative AI recommend these and the next two. They are not on a
page, so they cost no series."""
GEN_AI_OUTPUT_TOKEN_SECONDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1, 2.5),
)
GEN_AI_FIRST_TOKEN_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10),
)


def merged(*bounds: Iterable[float]) -> tuple[float, ...]:
    """All bounds in order, each once."""
    return tuple(sorted({bound for some in bounds for bound in some}))


def up_to(bounds: Iterable[float], limit: float) -> tuple[float, ...]:
    """The bounds that are at most `limit`."""
    return tuple(bound for bound in bounds if bound <= limit)
