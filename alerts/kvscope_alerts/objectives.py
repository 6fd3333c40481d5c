"""Service-level objectives: those of every model, and different ones for single models."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kvscope_alerts.rule import Record
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import PAGE_BELOW
from kvscope_alerts.timing import seconds_of
from kvscope_monitoring.bounds import FIRST_TOKEN, TOKEN_GAP, limits
from kvscope_monitoring.objectives import ERROR_OBJECTIVE, ITL_SECONDS, TTFT_SECONDS

_NOBODY: Mapping[str, float] = MappingProxyType({})
_NO_MODELS: Mapping[str, frozenset[str]] = MappingProxyType({})
_NO_TIMES: Mapping[str, str] = MappingProxyType({})
ALWAYS = 1_000_000
"""More replicas than any model has."""
_NONE = "none"
"""Value on the command line: the model has no such objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """Limits by model. Buckets count timely observations, so each is near a bound of the histogram
    of every kind of server."""

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
    exempt: Mapping[str, frozenset[str]] = field(default_factory=lambda: _NO_MODELS)
    """Models without an objective, by its flag: ttft, itl, errors."""
    loading: Mapping[str, str] = field(default_factory=lambda: _NO_TIMES)
    """Time that a model may take to become ready, for models that differ from the default."""
    to_zero: frozenset[str] = frozenset()
    """Models that may have fewer engines, or none, at any time."""
    page_below: int = PAGE_BELOW
    """Replicas of a model below which a failure of one pages."""
    scope: Scope = field(default_factory=Scope)
    """Labels of the places; an objective holds for a model in each place."""

    def __post_init__(self) -> None:
        others = "every other model"
        for model, seconds in ((others, self.ttft_default), *self.ttft.items()):
            _check_bound(model, seconds, "the first token", limits(FIRST_TOKEN))
        for model, seconds in ((others, self.itl_default), *self.itl.items()):
            _check_bound(model, seconds, "the next token", limits(TOKEN_GAP))
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
        *,
        loading: Iterable[str] = (),
        to_zero: Iterable[str] = (),
        page_when: str = f"replicas<{PAGE_BELOW}",
    ) -> "Objectives":
        """Objectives from MODEL=NUMBER or MODEL=none on the command line; the last value for a
        model counts."""
        limits, exempt = {}, {}
        for flag, pairs, unit, example in (
            ("ttft", ttft, "SECONDS", "5"),
            ("itl", itl, "SECONDS", "0.1"),
            ("errors", errors, "SHARE", "0.995"),
        ):
            given = _pairs(f"--{flag}", pairs, unit, example)
            exempt[flag] = frozenset(model for model, text in given.items() if text == _NONE)
            limits[flag] = MappingProxyType(
                {model: float(text) for model, text in given.items() if text != _NONE}
            )
        return cls(
            ttft=limits["ttft"],
            itl=limits["itl"],
            errors=limits["errors"],
            exempt=exempt,
            loading=_durations("--loading", loading),
            to_zero=frozenset(to_zero),
            page_below=_below(page_when),
            scope=scope or Scope(),
        )


def _check_bound(model: str, seconds: float, what: str, bounds: tuple[float, ...]) -> None:
    if seconds not in bounds:
        known = ", ".join(f"{bound:g}" for bound in bounds)
        raise ValueError(
            f"the objective of {model} is {seconds:g} s for {what}, which some servers' "
            f"histograms have no bound near: use one of {known}"
        )


def _pairs(flag: str, pairs: Iterable[str], unit: str, example: str) -> Mapping[str, str]:
    """Numbers as they were written, or `none`, by model."""
    limits = {}
    for pair in pairs:
        model, separator, number = pair.rpartition("=")
        try:
            limits[model] = number if number == _NONE else str(float(number))
        except ValueError:
            separator = ""
        if not separator or not model:
            raise ValueError(
                f"{flag} {pair!r}: expected MODEL={unit} or MODEL=none, as in llama-70b={example}"
            )
    return limits


def _durations(flag: str, pairs: Iterable[str]) -> Mapping[str, str]:
    found = {}
    for pair in pairs:
        model, separator, duration = pair.rpartition("=")
        if not separator or not model:
            raise ValueError(f"{flag} {pair!r}: expected MODEL=DURATION, as in llama-405b=60m")
        try:
            seconds_of(duration)
        except ValueError as error:
            raise ValueError(f"{flag} {pair!r}: {error}") from None
        found[model] = duration
    return MappingProxyType(found)


def _below(text: str) -> int:
    match = re.fullmatch(r"replicas\s*<\s*(\d+)|(always)", text.strip())
    if match is None:
        raise ValueError(f"--page-when {text!r}: expected replicas<N, as in replicas<3, or always")
    return ALWAYS if match[2] else int(match[1])


PROMISED = "model:kvscope_promised:max"
"""A series for each model and objective that was set for it, which is 1. Only these page, since no
limit suits all models. Errors need none: a request that fails is a failure whatever the model."""


def promise_records(own: Mapping[str, Mapping[str, float]]) -> list[Record]:
    """own: limits by model, by the objective's flag."""
    return [
        Record(record=PROMISED, expr="vector(1)", labels={"model_name": model, "objective": flag})
        for flag, limits in own.items()
        for model in limits
    ]


def if_promised(flag: str) -> str:
    """The matching clause of an alert about a model; empty for errors."""
    return "" if flag == "errors" else f'on (model_name) {PROMISED}{{objective="{flag}"}}'
