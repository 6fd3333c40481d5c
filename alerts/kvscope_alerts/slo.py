"""Service levels: burn rates over pairs of windows, by model. An objective holds for the service,
not for one replica.

Bad ones and the total are recorded once, over five minutes. The long windows are sums of these: a
day of a fleet's raw buckets would be millions of samples in each evaluation.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kvscope_alerts.objectives import Objectives, if_promised, promise_records
from kvscope_alerts.rule import MODEL, SERVERS, Alert, Group, Record, Rule, Severity, Topic
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring import objectives as promised

_NEAREST = " (or the nearest bound of the server's histogram)"
INTERVAL = "1m"
"""Interval of evaluation: the sums count the samples of the recorded rates."""


class Text(NamedTuple):
    """Wording and waits of the alerts of a pace."""

    sign: str
    pace: promised.Pace
    wait: str
    windows: str
    keep: str | None = None


FAST = Text(
    *("fast", promised.FAST, "2m"),
    windows="in the last hour, or in the last six",
    # Shorter than what KvscopeReplicaFails, which silences it, takes to forget a failure.
    keep="3m",
)
SLOWLY = Text(*("slowly", promised.SLOWLY, "1h"), windows="in the last day, or in the last three")
PACES = (FAST, SLOWLY)
_PAIRS = [pair for text in PACES for pair in text.pace.pairs]
_LONG = sorted({pair.long for pair in _PAIRS})
_WINDOWS = sorted({pair.short for pair in _PAIRS} | {*_LONG})


class Slo(NamedTuple):
    """An objective for the share of good ones among those that count."""

    flag: str
    alert: str
    topic: Topic
    metric: str
    what: str
    missed: Callable[[Objectives], str]
    budgets: Callable[[Objectives], tuple[float, Mapping[str, float]]]
    """The objective of every other model, and those of single models."""
    min_bad: int
    """Minimum number of bad ones for a page, and for a warning."""
    warn_bad: int


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
    flag="ttft",
    alert="KvscopeTtftBudgetBurns",
    topic="slo-ttft",
    metric="kvscope_ttft",
    what="first tokens",
    missed=lambda o: (
        f"of the requests to {MODEL} had no first token within "
        f"{_by_model(o.ttft_default, o.ttft)} s{_NEAREST}"
    ),
    budgets=lambda _: (1 - promised.TTFT_OBJECTIVE, {}),
    min_bad=promised.BURN_MIN_BAD,
    warn_bad=promised.BURN_WARN_BAD,
)
ITL = Slo(
    flag="itl",
    alert="KvscopeItlBudgetBurns",
    topic="slo-itl",
    metric="kvscope_itl",
    what="the time between two tokens",
    missed=lambda o: (
        f"of the tokens of {MODEL} came later than "
        f"{_by_model(o.itl_default, o.itl)} s{_NEAREST} after the one before"
    ),
    budgets=lambda _: (1 - promised.ITL_OBJECTIVE, {}),
    min_bad=promised.BURN_MIN_BAD_TOKENS,
    warn_bad=promised.BURN_WARN_BAD_TOKENS,
)
ERRORS = Slo(
    flag="errors",
    alert="KvscopeErrorBudgetBurns",
    topic="slo-errors",
    metric="kvscope_request_errors",
    what="requests",
    missed=lambda _: f"of the requests to {MODEL} failed or were refused for lack of room",
    budgets=_error_budgets,
    min_bad=promised.BURN_MIN_BAD,
    warn_bad=promised.BURN_WARN_BAD,
)
SLOS = (TTFT, ITL, ERRORS)


def slo_groups(timing: Timing, objectives: Objectives) -> list[Group]:
    own = promise_records({TTFT.flag: objectives.ttft, ITL.flag: objectives.itl})
    return [
        *([Group(name="kvscope-promised.rules", rules=[*own])] if own else []),
        *(
            Group(
                name=f"kvscope-slo-{slo.flag}.rules",
                rules=_recorded(slo, timing, objectives),
                interval=INTERVAL,
            )
            for slo in SLOS
        ),
        Group(
            name="kvscope-slo",
            rules=[
                *(_pages(slo, objectives) for slo in SLOS),
                *(_warns(slo, text, objectives) for text in PACES for slo in SLOS),
            ],
            interval=INTERVAL,
        ),
    ]


def _recorded(slo: Slo, timing: Timing, objectives: Objectives) -> list[Rule]:
    # shortened rules are evaluated every second
    interval = timing.seconds(INTERVAL) if timing.divisor == 1 else 1
    bad, every = f"model:{slo.metric}_bad:rate5m", judged(slo)
    judged_expr, bad_expr = _judge(slo, every, timing.range("5m"), objectives)
    rules: list[Rule] = [
        Record(record=every, expr=judged_expr),
        Record(record=bad, expr=bad_expr),
    ]
    rules += [
        Record(
            record=f"model:{slo.metric}_bad:ratio_rate{window}",
            expr=formulas.share(
                f"sum_over_time({bad}[{timing.range(window)}])",
                f"sum_over_time({every}[{timing.range(window)}])",
            )
            if window != "5m"
            else formulas.share(bad, every),
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
    ordinary = f"avg_over_time({every}[{timing.range(promised.ORDINARY)}])"
    rules.append(Record(record=_ordinary(slo), expr=ordinary))
    return rules


def judged(slo: Slo) -> str:
    """The record of the requests, or tokens, per second that count for the objective."""
    return f"model:{slo.metric}_judged:rate5m"


def _ordinary(slo: Slo) -> str:
    return f"model:{slo.metric}_judged:mean_rate{promised.ORDINARY}"


def _judge(slo: Slo, record: str, window: str, objectives: Objectives) -> tuple[str, str]:
    """The total per second and model, and the bad ones; `record` has the former by then."""
    by = f"by ({objectives.scope.model})"
    exempt = sorted(objectives.exempt.get(slo.flag, ()))
    held = _but(exempt)
    if slo is ERRORS:
        return (
            formulas.judged_requests(window, by, held),
            formulas.failed_requests(window, by, held),
        )
    if slo is ITL:
        default, own = objectives.itl_default, objectives.itl
        timely = _by_limit(formulas.timely_token_gaps, window, by, default, own, exempt)
        return formulas.token_gaps(window, by, held), f"{record} - {timely}"
    default, own = objectives.ttft_default, objectives.ttft
    timely = _by_limit(formulas.timely_first_tokens, window, by, default, own, exempt)
    given_up = _by_limit(formulas.abandoned_late, window, by, default, own, exempt)
    judged = formulas.first_tokens(window, by, held)
    # a server that is read only from its own page does not report those who gave up
    judged = f"{judged}\n+ {given_up}\nor {judged}"
    return judged, f"{record} - {timely}"


def _but(models: Iterable[str]) -> str:
    return ",".join(f"model_name!={json.dumps(model)}" for model in models)


def _by_limit(
    count: Callable[[str, str, float, str], str],
    window: str,
    by: str,
    default: float,
    own: Mapping[str, float],
    exempt: Iterable[str],
) -> str:
    """A count for each model at its own limit."""
    each = [count(window, by, default, _but([*own, *exempt]))]
    each += [
        count(window, by, limit, f"model_name={json.dumps(model)}") for model, limit in own.items()
    ]
    return f"({' or '.join(each)})" if len(each) > 1 else each[0]


def _burns(slo: Slo, record: str, factor: float, objectives: Objectives) -> str:
    """Models whose ratio is this many times their budget."""
    default, own = slo.budgets(objectives)
    if not own:
        return f"{record} > {factor * default:.4g}"
    each = [f"{record}{{{_but(own)}}} > {factor * default:.4g}"]
    each += [
        f"{record}{{model_name={json.dumps(model)}}} > {factor * budget:.4g}"
        for model, budget in own.items()
    ]
    return f"({' or '.join(each)})"


def _enough(slo: Slo, bad: str) -> str:
    hour = promised.BURN_MIN_BAD_SHARE * 3600
    return f"{bad} >= {slo.min_bad} and {bad} > {hour:g} * {_ordinary(slo)}"


def _pages(slo: Slo, objectives: Objectives) -> Alert:
    own = if_promised(slo.flag)
    own = f"\nand {own}" if own else ""
    return _alert(
        slo, FAST, objectives, lambda bad: f"and ({_enough(slo, bad)}){own}", "critical", slo.alert
    )


def _warns(slo: Slo, text: Text, objectives: Objectives) -> Alert:
    """Fast burns that do not page: with few bad ones hardly anyone is affected."""

    def least(bad: str) -> str:
        pages = f"({' and '.join(filter(None, (_enough(slo, bad), if_promised(slo.flag))))})"
        return f"and {bad} >= {slo.warn_bad}" + (f"\nunless {pages}" if text is FAST else "")

    return _alert(slo, text, objectives, least, "warning", "KvscopeBudgetBurnsSlowly")


def _alert(
    slo: Slo,
    text: Text,
    objectives: Objectives,
    enough: Callable[[str], str],
    severity: Severity,
    name: str,
) -> Alert:
    """enough: the condition on a series that counts the bad ones."""
    default, own = slo.budgets(objectives)
    percent = _by_model(100 * default, {model: 100 * budget for model, budget in own.items()})
    ratio = f"model:{slo.metric}_bad:ratio_rate"
    least = min(pair.factor for pair in text.pace.pairs)
    pages = severity == "critical"
    return Alert(
        name=name,
        severity=severity,
        topic=slo.topic,
        expr="\nor\n".join(
            f"{_burns(slo, ratio + pair.long, pair.factor, objectives)}\n"
            + "".join(
                f"and {_burns(slo, ratio + window, pair.factor, objectives)}\n"
                for window in (pair.short, pair.now)
                if window
            )
            + enough(f"model:{slo.metric}_bad:increase{pair.long}")
            for pair in text.pace.pairs
        ),
        wait=text.wait,
        keep=text.keep,
        summary=f"The error budget of {slo.what} is being used up within days."
        if pages
        else "A model misses an objective, slowly or with few requests or by a default limit.",
        description=f"{{{{ $value | humanizePercentage }}}} {slo.missed(objectives)} "
        f"{text.windows}; {percent}% is the budget, and this rate is {least:g} times that or "
        "more.",
        board="kvscope-service-levels",
        by=("model_name",),
        labels={} if pages else {"objective": slo.flag, "sign": text.sign},
        servers=SERVERS,
    )
