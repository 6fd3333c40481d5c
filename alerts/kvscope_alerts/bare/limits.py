"""The numbers of these rules that differ from our own rules, and the settings of an
installation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kvscope_alerts.bare.server import SGLANG, VLLM
from kvscope_alerts.scope import Scope
from kvscope_exporter.state.buckets import VLLM_FIRST_TOKEN_SECONDS, VLLM_INTER_TOKEN_SECONDS
from kvscope_monitoring.bounds import SGLANG_FIRST_TOKEN_SECONDS, SGLANG_INTER_TOKEN_SECONDS

FAILING_MIN = 5
"""Minimum failures in the window: fewer affect only one user."""

PREEMPTED_SHARE = 0.10
"""Preemptions per ended request. Their cost is not reported; if one request in ten is computed
twice, it is worth a look.
"""
PREEMPTED_MIN = 10
"""Minimum number in ten minutes."""

SLOW_FACTOR = {"first-token": 3.0, "inter-token": 1.5}
"""Relative to the median of the model's servers. First tokens vary with the prompts, gaps do not:
at half speed a gap is twice the median's."""
SLOW_MIN_SECONDS = {"first-token": 1.0, "inter-token": 0.02}
"""Anything faster than this is fast enough, whatever the others do."""
SLOW_MIN_SERVERS = 3
"""Minimum servers: of two, it is unknown which is the odd one."""

ERROR_OBJECTIVE = 0.999
"""Share of the requests that were neither failed nor refused: with a budget of one per cent, every
seventh request could fail for an hour without a page.
"""
GAP_OBJECTIVE = 0.99
"""Share of the gaps between two tokens within the limit."""
GAPS_MIN_BAD = 100
"""Minimum late gaps in the long window: one reply has hundreds."""

BOUNDS = {
    VLLM.first_token: VLLM_FIRST_TOKEN_SECONDS,
    VLLM.gap: VLLM_INTER_TOKEN_SECONDS,
    SGLANG.first_token: SGLANG_FIRST_TOKEN_SECONDS,
    SGLANG.gap: SGLANG_INTER_TOKEN_SECONDS,
}
"""The servers' default histogram bounds; both allow configuring them."""

SECONDS = {VLLM.first_token: 2.5, VLLM.gap: 0.2, SGLANG.first_token: 2.0, SGLANG.gap: 0.2}
"""Default limits, each a bound. A gap of 0.2 s is five tokens a second, a reader's pace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that differ between installations."""

    job: str
    """Regular expression of the scrape jobs."""
    by: tuple[str, ...] = Scope().labels
    """Labels by which service levels are kept and servers are compared."""
    first_token: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Seconds by model, if they differ from SECONDS."""
    gap: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    any_bound: bool = False
    """Whether the servers' histograms have their own bounds."""

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
