"""Service levels: burn rates over pairs of windows, by model. An objective holds for the service,
not for one replica."""

import json
from typing import NamedTuple

from alerts.objectives import Objectives
from alerts.rule import Alert, Group, Record, Rule, Severity, Topic
from alerts.thresholds import BURN_MIN_BAD, ERROR_OBJECTIVE, TTFT_OBJECTIVE
from alerts.timing import Timing
from monitoring import formulas


class Pair(NamedTuple):
    """Both windows must burn: the long one shows that it matters, the short one that it goes on."""

    factor: float
    long: str
    short: str
    wait: str
    severity: Severity


PAIRS = (
    Pair(14.4, "1h", "5m", "2m", "critical"),
    Pair(6, "6h", "30m", "15m", "critical"),
    Pair(3, "1d", "2h", "1h", "warning"),
    Pair(1, "3d", "6h", "3h", "warning"),
)
"""The pairs of Google's SRE workbook: a 30-day budget is used up in 2, 5, 10 and 30 days."""
_BY_MODEL = "by (model_name)"
_WINDOWS = sorted({w for pair in PAIRS for w in (pair.long, pair.short)})


class Slo(NamedTuple):
    """An objective for the share of good requests among those that count."""

    alert: str
    topic: Topic
    metric: str
    objective: float
    what: str


TTFT = Slo("KvscopeTtftBudgetBurns", "slo-ttft", "kvscope_ttft", TTFT_OBJECTIVE, "first tokens")
ERRORS = Slo(
    "KvscopeErrorBudgetBurns", "slo-errors", "kvscope_request_errors", ERROR_OBJECTIVE, "requests"
)


def slo_groups(timing: Timing, objectives: Objectives) -> list[Group]:
    return [
        Group(name="kvscope-slo.rules", rules=_recorded(timing, objectives), interval="1m"),
        Group(
            name="kvscope-slo",
            rules=[alert for slo in (TTFT, ERRORS) for alert in _alerts(slo, objectives)],
            interval="1m",
        ),
    ]


def _recorded(timing: Timing, objectives: Objectives) -> list[Rule]:
    rules: list[Rule] = []
    for slo in (TTFT, ERRORS):
        for window in _WINDOWS:
            bad, judged = _judge(slo, timing.range(window), objectives)
            rules.append(
                Record(
                    record=f"model:{slo.metric}_bad:ratio_rate{window}",
                    expr=formulas.share(f"({bad})", f"({judged})"),
                )
            )
        for pair in PAIRS:
            bad, _ = _judge(slo, timing.range(pair.long), objectives)
            rules.append(
                Record(
                    record=f"model:{slo.metric}_bad:increase{pair.long}",
                    expr=f"({bad}) * {timing.seconds(pair.long):g}",
                )
            )
    return rules


def _judge(slo: Slo, window: str, objectives: Objectives) -> tuple[str, str]:
    """Records bad requests, and all that count, per second and model."""
    if slo is ERRORS:
        return (
            formulas.failed_requests(window, _BY_MODEL),
            formulas.judged_requests(window, _BY_MODEL),
        )
    judged = formulas.first_tokens(window, _BY_MODEL)
    return f"{judged} - {_timely(window, objectives)}", judged


def _timely(window: str, objectives: Objectives) -> str:
    """First tokens within the limit, each model by its own."""
    own = objectives.ttft.items()
    others = ",".join(f"model_name!={json.dumps(model)}" for model, _ in own)
    default = formulas.timely_first_tokens(window, _BY_MODEL, objectives.ttft_default, others)
    if not own:
        return default
    each = [
        formulas.timely_first_tokens(window, _BY_MODEL, limit, f"model_name={json.dumps(model)}")
        for model, limit in own
    ]
    return f"({' or '.join([default, *each])})"


def _limit(objectives: Objectives) -> str:
    """The limit in seconds, as text for a description."""
    text = f"{objectives.ttft_default:g}"
    for model, seconds in objectives.ttft.items():
        text = (
            f"{{{{ if eq $labels.model_name {json.dumps(model)} }}}}{seconds:g}"
            f"{{{{ else }}}}{text}{{{{ end }}}}"
        )
    return text


def _alerts(slo: Slo, objectives: Objectives) -> list[Rule]:
    budget = 1 - slo.objective
    missed = {
        "slo-ttft": f"had no first token within {_limit(objectives)} s",
        "slo-errors": "failed or were refused for lack of room",
    }[slo.topic]
    return [
        Alert(
            name=slo.alert + ("Fast" if pair.severity == "critical" else "Slowly"),
            severity=pair.severity,
            topic=slo.topic,
            expr=f"model:{slo.metric}_bad:ratio_rate{pair.long} > {pair.factor * budget:.4g}\n"
            f"and model:{slo.metric}_bad:ratio_rate{pair.short} > {pair.factor * budget:.4g}\n"
            f"and model:{slo.metric}_bad:increase{pair.long} >= {BURN_MIN_BAD}",
            wait=pair.wait,
            summary=f"The error budget of {slo.what} is being used up "
            + ("within days." if pair.severity == "critical" else "faster than it comes back."),
            description=f"{{{{ $value | humanizePercentage }}}} of the requests to "
            f"{{{{ $labels.model_name }}}} {missed} in the last {pair.long}; {budget:.0%} is the "
            f"budget, and this rate is {pair.factor:g} times that or more.",
            board="kvscope-overview",
            by=("model_name",),
            labels={"window": pair.long},
        )
        for pair in PAIRS
    ]
