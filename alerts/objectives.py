"""Service-level objectives: what every model is held to, and what single models are instead."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from alerts.scope import Scope
from alerts.thresholds import ERROR_OBJECTIVE, ITL_SECONDS, TTFT_SECONDS
from exporter.buckets import FIRST_TOKEN_SECONDS, INTER_TOKEN_SECONDS

_NOBODY: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """Limits by model; each is a bound of its histogram, whose buckets count what came in time."""

    ttft: Mapping[str, float] = field(default_factory=lambda: _NOBODY)
    """Seconds to the first token by model, for models that differ from `ttft_default`."""
    ttft_default: float = TTFT_SECONDS
    """Seconds for every other model."""
    itl: Mapping[str, float] = field(default_factory=lambda: _NOBODY)
    """Seconds between two tokens by model, for models that differ from `itl_default`."""
    itl_default: float = ITL_SECONDS
    """Seconds for every other model."""
    errors: Mapping[str, float] = field(default_factory=lambda: _NOBODY)
    """Share of requests without an error by model, for models that differ from `errors_default`."""
    errors_default: float = ERROR_OBJECTIVE
    """Share for every other model."""
    scope: Scope = field(default_factory=Scope)
    """An objective is one model's, in each of these places."""

    def __post_init__(self) -> None:
        others = "every other model"
        for model, seconds in ((others, self.ttft_default), *self.ttft.items()):
            _check_bound(model, seconds, "the first token", FIRST_TOKEN_SECONDS)
        for model, seconds in ((others, self.itl_default), *self.itl.items()):
            _check_bound(model, seconds, "the next token", INTER_TOKEN_SECONDS)
        for model, share in ((others, self.errors_default), *self.errors.items()):
            if not 0 < share < 1:
                raise ValueError(
                    f"the objective of {model} is {share:g} of the requests without an error: "
                    "give a share between 0 and 1, as 0.995"
                )

    @classmethod
    def parse(
        cls,
        ttft: Iterable[str] = (),
        itl: Iterable[str] = (),
        errors: Iterable[str] = (),
        scope: Scope | None = None,
    ) -> "Objectives":
        """Objectives from MODEL=NUMBER on the command line; the last value for a model counts."""
        return cls(
            ttft=_pairs("--ttft", ttft, "SECONDS", "5"),
            itl=_pairs("--itl", itl, "SECONDS", "0.1"),
            errors=_pairs("--errors", errors, "SHARE", "0.995"),
            scope=scope or Scope(),
        )


def _check_bound(model: str, seconds: float, what: str, bounds: tuple[float, ...]) -> None:
    if seconds not in bounds:
        known = ", ".join(f"{bound:g}" for bound in bounds)
        raise ValueError(
            f"the objective of {model} is {seconds:g} s for {what}, which is not "
            f"a bound of the histogram: use one of {known}"
        )


def _pairs(flag: str, pairs: Iterable[str], unit: str, example: str) -> Mapping[str, float]:
    limits = {}
    for pair in pairs:
        model, separator, number = pair.rpartition("=")
        try:
            limits[model] = float(number)
        except ValueError:
            separator = ""
        if not separator or not model:
            raise ValueError(f"{flag} {pair!r}: expected MODEL={unit}, as in llama-70b={example}")
    return MappingProxyType(limits)
