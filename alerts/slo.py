"""Service levels: burn rates over pairs of windows, by model. An objective holds for the service,
not for one replica.

What is bad and what counts is recorded once, over five minutes. The long windows are sums of that:
a day of the raw buckets of a fleet would be millions of samples in each evaluation.
"""

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from alerts.objectives import Objectives
from alerts.rule import MODEL, Alert, Group, Record, Rule, Severity, Topic
from alerts.thresholds import (
    BURN_MIN_BAD,
    BURN_MIN_BAD_TOKENS,
    ITL_OBJECTIVE,
    TTFT_OBJECTIVE,
)
from alerts.timing import Timing
from monitoring import formulas

INTERVAL = "1m"
"""Of evaluation: the sums count the samples of the recorded rates."""


class Pair(NamedTuple):
    """All windows must burn: the long one shows that it matters, the short one that it goes on."""

    factor: float
    long: str
    short: str
    now: str = ""
    """A third one, where the short one takes long to forget what is over."""


class Pace(NamedTuple):
    """Pairs of one severity are one alert, so that the second is no second message."""

    name: str
    severity: Severity
    wait: str
    pairs: tuple[Pair, ...]
    windows: str
    summary: str
    keep: str | None = None


PACES = (
    Pace(
        *("Fast", "critical", "2m", (Pair(14.4, "1h", "5m"), Pair(6, "6h", "30m", "5m"))),
        windows="in the last hour, or in the last six",
        summary="within days.",
        # Shorter than what KvscopeErrorOutlier, which silences it, takes to forget a failure.
        keep="3m",
    ),
    Pace(
        *("Slowly", "warning", "1h", (Pair(3, "1d", "2h"), Pair(1, "3d", "6h"))),
        windows="in the last day, or in the last three",
        summary="faster than it comes back.",
    ),
)
"""The pairs of Google's SRE workbook: a 30-day budget is used up in 2, 5, 10 and 30 days. Nobody is
called for the half hour after a failure that has ended."""
_LONG = sorted({pair.long for pace in PACES for pair in pace.pairs})
_WINDOWS = sorted({pair.short for pace in PACES for pair in pace.pairs} | {*_LONG})


class Slo(NamedTuple):
    """An objective for the share of good ones among those that count."""

    alert: str
    topic: Topic
    metric: str
    what: str
    missed: Callable[[Objectives], str]
    budgets: Callable[[Objectives], tuple[float, Mapping[str, float]]]
    """That of every other model, and those of single models."""
    min_bad: int


def _by_model(default: float, own: Mapping[str, float]) -> str:
    """A number as text for a description, each model's own."""
    text = f"{default:.4g}"
    for model, number in own.items():
        text = (
            f"{{{{ if eq $labels.model_name {json.dumps(model)} }}}}{number:.4g}"
            f"{{{{ else }}}}{text}{{{{ end }}}}"
        )
    return text


def _error_budgets(objectives: Objectives) -> tuple[float, Mapping[str, float]]:
    own = {model: 1 - share for model, share in objectives.errors.items()}
    return 1 - objectives.errors_default, own


TTFT = Slo(
    alert="KvscopeTtftBudgetBurns",
    topic="slo-ttft",
    metric="kvscope_ttft",
    what="first tokens",
    missed=lambda o: (
        f"of the requests to {MODEL} had no first token within "
        f"{_by_model(o.ttft_default, o.ttft)} s"
    ),
    budgets=lambda _: (1 - TTFT_OBJECTIVE, {}),
    min_bad=BURN_MIN_BAD,
)
ITL = Slo(
    alert="KvscopeItlBudgetBurns",
    topic="slo-itl",
    metric="kvscope_itl",
    what="the time between two tokens",
    missed=lambda o: (
        f"of the tokens of {MODEL} came later than "
        f"{_by_model(o.itl_default, o.itl)} s after the one before"
    ),
    budgets=lambda _: (1 - ITL_OBJECTIVE, {}),
    min_bad=BURN_MIN_BAD_TOKENS,
)
ERRORS = Slo(
    alert="KvscopeErrorBudgetBurns",
    topic="slo-errors",
    metric="kvscope_request_errors",
    what="requests",
    missed=lambda _: f"of the requests to {MODEL} failed or were refused for lack of room",
    budgets=_error_budgets,
    min_bad=BURN_MIN_BAD,
)
SLOS = (TTFT, ITL, ERRORS)


def slo_groups(timing: Timing, objectives: Objectives) -> list[Group]:
    return [
        Group(name="kvscope-slo.rules", rules=_recorded(timing, objectives), interval=INTERVAL),
        Group(
            name="kvscope-slo",
            rules=[_alert(slo, pace, objectives) for slo in SLOS for pace in PACES],
            interval=INTERVAL,
        ),
    ]


def _recorded(timing: Timing, objectives: Objectives) -> list[Rule]:
    rules: list[Rule] = []
    # shortened rules are evaluated every second
    interval = timing.seconds(INTERVAL) if timing.divisor == 1 else 1
    for slo in SLOS:
        bad, judged = f"model:{slo.metric}_bad:rate5m", f"model:{slo.metric}_judged:rate5m"
        judged_expr, bad_expr = _judge(slo, judged, timing.range("5m"), objectives)
        rules += [Record(record=judged, expr=judged_expr), Record(record=bad, expr=bad_expr)]
        rules += [
            Record(
                record=f"model:{slo.metric}_bad:ratio_rate{window}",
                expr=formulas.share(
                    f"sum_over_time({bad}[{timing.range(window)}])",
                    f"sum_over_time({judged}[{timing.range(window)}])",
                )
                if window != "5m"
                else formulas.share(bad, judged),
            )
            for window in _WINDOWS
        ]
        rules += [
            Record(
                record=f"model:{slo.metric}_bad:increase{window}",
                expr=f"sum_over_time({bad}[{timing.range(window)}]) * {interval:g}",
            )
            for window in _LONG
        ]
    return rules


def _judge(slo: Slo, record: str, window: str, objectives: Objectives) -> tuple[str, str]:
    """All that counts, per second and model, and what is bad; `record` has the former by then."""
    by = f"by ({objectives.scope.model})"
    if slo is ERRORS:
        return formulas.judged_requests(window, by), formulas.failed_requests(window, by)
    if slo is ITL:
        timely = _by_limit(
            formulas.timely_token_gaps, window, by, objectives.itl_default, objectives.itl
        )
        return formulas.token_gaps(window, by), f"{record} - {timely}"
    default, own = objectives.ttft_default, objectives.ttft
    timely = _by_limit(formulas.timely_first_tokens, window, by, default, own)
    given_up = _by_limit(formulas.abandoned_late, window, by, default, own)
    judged = formulas.first_tokens(window, by)
    if given_up:  # a server that is read from its own page does not tell it
        judged = f"{judged}\n+ {given_up}\nor {judged}"
    return judged, f"{record} - {timely}"


def _by_limit(
    count: Callable[[str, str, float, str], str],
    window: str,
    by: str,
    default: float,
    own: Mapping[str, float],
) -> str:
    """A count for each model at its own limit; empty where there is none at any limit."""
    others = ",".join(f"model_name!={json.dumps(model)}" for model in own)
    each = [count(window, by, default, others)]
    each += [
        count(window, by, limit, f"model_name={json.dumps(model)}") for model, limit in own.items()
    ]
    each = [expr for expr in each if expr]
    return f"({' or '.join(each)})" if len(each) > 1 else "".join(each)


def _burns(slo: Slo, record: str, factor: float, objectives: Objectives) -> str:
    """Models whose ratio is so many times their budget."""
    default, own = slo.budgets(objectives)
    if not own:
        return f"{record} > {factor * default:.4g}"
    others = ",".join(f"model_name!={json.dumps(model)}" for model in own)
    each = [f"{record}{{{others}}} > {factor * default:.4g}"]
    each += [
        f"{record}{{model_name={json.dumps(model)}}} > {factor * budget:.4g}"
        for model, budget in own.items()
    ]
    return f"({' or '.join(each)})"


def _alert(slo: Slo, pace: Pace, objectives: Objectives) -> Alert:
    default, own = slo.budgets(objectives)
    percent = _by_model(100 * default, {model: 100 * budget for model, budget in own.items()})
    ratio = f"model:{slo.metric}_bad:ratio_rate"
    least = min(pair.factor for pair in pace.pairs)
    return Alert(
        name=slo.alert + pace.name,
        severity=pace.severity,
        topic=slo.topic,
        expr="\nor\n".join(
            f"{_burns(slo, ratio + pair.long, pair.factor, objectives)}\n"
            + "".join(
                f"and {_burns(slo, ratio + window, pair.factor, objectives)}\n"
                for window in (pair.short, pair.now)
                if window
            )
            + f"and model:{slo.metric}_bad:increase{pair.long} >= {slo.min_bad}"
            for pair in pace.pairs
        ),
        wait=pace.wait,
        keep=pace.keep,
        summary=f"The error budget of {slo.what} is being used up {pace.summary}",
        description=f"{{{{ $value | humanizePercentage }}}} {slo.missed(objectives)} "
        f"{pace.windows}; {percent}% is the budget, and this rate is {least:g} times that or "
        "more.",
        board="kvscope-overview",
        by=("model_name",),
    )
