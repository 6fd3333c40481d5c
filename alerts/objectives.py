"""Service-level objectives that differ by model: the limit for the time to first token."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from alerts.thresholds import TTFT_SECONDS
from exporter.buckets import FIRST_TOKEN_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """Limits by model; each is a bound of the histogram, whose buckets count the tokens in time."""

    ttft: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Seconds by model, for models that differ from `ttft_default`."""
    ttft_default: float = TTFT_SECONDS
    """Seconds for every other model."""

    def __post_init__(self) -> None:
        for model, seconds in (("every other model", self.ttft_default), *self.ttft.items()):
            if seconds not in FIRST_TOKEN_SECONDS:
                known = ", ".join(f"{bound:g}" for bound in FIRST_TOKEN_SECONDS)
                raise ValueError(
                    f"the objective of {model} is {seconds:g} s for the first token, which is not "
                    f"a bound of the histogram: use one of {known}"
                )

    @classmethod
    def parse(cls, pairs: Iterable[str]) -> "Objectives":
        """Objectives from MODEL=SECONDS on the command line; the last value for a model counts."""
        ttft = {}
        for pair in pairs:
            model, separator, seconds = pair.rpartition("=")
            try:
                ttft[model] = float(seconds)
            except ValueError:
                separator = ""
            if not separator or not model:
                raise ValueError(f"--ttft {pair!r}: expected MODEL=SECONDS, as in llama-70b=5")
        return cls(ttft=MappingProxyType(ttft))
