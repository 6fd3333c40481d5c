"""The latency objectives that were set for a model: only these page, since what suits all models
suits none. A request that fails is a failure whatever the model, so errors need no such promise."""

from collections.abc import Mapping

from kvscope_alerts.rule import Record

PROMISED = "model:kvscope_promised:max"
"""A series for each model and objective, which is 1."""


def promises(own: Mapping[str, Mapping[str, float]]) -> list[Record]:
    """own: limits by model, by the objective's flag."""
    return [
        Record(record=PROMISED, expr="vector(1)", labels={"model_name": model, "objective": flag})
        for flag, limits in own.items()
        for model in limits
    ]


def promised(flag: str) -> str:
    """The matching clause of an alert about a model; empty for errors."""
    return "" if flag == "errors" else f'on (model_name) {PROMISED}{{objective="{flag}"}}'
