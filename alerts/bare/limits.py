"""The numbers of these rules that are not those of our own, and the settings of an installation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from alerts.bare.server import SGLANG, VLLM
from alerts.scope import Scope

FAILING_MIN = 5
"""Least number of failures in the window: fewer concern one user."""

PREEMPTED_SHARE = 0.10
"""Preemptions for each request that ended. Their cost is not reported; with one request of ten
computed twice, it is worth a look.
"""
PREEMPTED_MIN = 10
"""Least number in ten minutes."""

SLOW_FACTOR = {"first-token": 3.0, "inter-token": 1.5}
"""Against the median of the model's servers. First tokens vary with the prompts, gaps do not: at
half speed a gap is twice the median's."""
SLOW_MIN_SECONDS = {"first-token": 1.0, "inter-token": 0.02}
"""Faster than this is fast enough, whatever the others do."""
SLOW_MIN_SERVERS = 3
"""With two, it is unknown which of them is the odd one."""

ERROR_OBJECTIVE = 0.999
"""Share of the requests that were neither failed nor refused: with a budget of one per cent, every
seventh request might fail for an hour without a page.
"""
GAP_OBJECTIVE = 0.99
"""Share of the gaps between two tokens within the limit."""
GAPS_MIN_BAD = 100
"""Least number of late gaps in the long window: one reply has hundreds."""

BOUNDS = {
    VLLM.first_token: (
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10),
        *(20, 40, 80, 160, 640, 2560),
    ),
    VLLM.gap: (
        *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20),
        *(40, 80),
    ),
    SGLANG.first_token: (
        *(0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400),
    ),
    SGLANG.gap: (
        *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08),
        *(0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8),
    ),
}
"""Bounds of the histograms as the servers ship; both let them be configured."""

SECONDS = {VLLM.first_token: 2.5, VLLM.gap: 0.2, SGLANG.first_token: 2.0, SGLANG.gap: 0.2}
"""Default limits, each a bound. A gap of 0.2 s is five tokens a second, a reader's pace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What differs between installations."""

    job: str
    """Regular expression of the scrape jobs."""
    by: tuple[str, ...] = Scope().labels
    """Labels by which service levels are kept and servers compared."""
    first_token: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Seconds by model, where they differ from SECONDS."""
    gap: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    any_bound: bool = False
    """The servers' histograms have bounds of their own."""

    def limits(self, family: str) -> Mapping[str, float]:
        """Seconds by model for a family. Raises ValueError for one that is not a bucket bound."""
        given = self.gap if family in (VLLM.gap, SGLANG.gap) else self.first_token
        for model, seconds in given.items():
            if not self.any_bound and seconds not in BOUNDS[family]:
                known = ", ".join(f"{bound:g}" for bound in BOUNDS[family])
                raise ValueError(
                    f"the objective of {model} is {seconds:g} s, which is not a bound of "
                    f"{family}: use one of {known}, or say --any-bound if yours has it"
                )
        return given


def pairs(flag: str, given: Iterable[str]) -> Mapping[str, float]:
    """Seconds by model from MODEL=SECONDS; the last value for a model counts."""
    found = {}
    for text in given:
        model, _, seconds = text.rpartition("=")
        try:
            found[model] = float(seconds)
        except ValueError:
            model = ""
        if not model:
            raise ValueError(f"{flag} {text!r}: expected MODEL=SECONDS")
    return MappingProxyType(found)
