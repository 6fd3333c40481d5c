"""Service levels: burn rates over pairs of windows, by model. An SLO is the service's, not that of
one replica."""

from typing import NamedTuple

from alerts.promql import matching, name
from alerts.rule import Alert, Group, Record, Rule, Severity, Topic
from alerts.thresholds import BURN_MIN_BAD, ERROR_OBJECTIVE, TTFT_OBJECTIVE, TTFT_SECONDS
from alerts.timing import Timing


class Pair(NamedTuple):
    """Both windows burn: the long one says that it matters, the short one that it goes on."""

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
"""Of Google's SRE workbook: a 30-day budget gone in 2, 5, 10 and 30 days."""
_WINDOWS = sorted({w for pair in PAIRS for w in (pair.long, pair.short)})


class Slo(NamedTuple):
    """Bad and judged requests a second are functions of the window."""

    alert: str
    topic: Topic
    metric: str
    objective: float
    what: str


TTFT = Slo("KvscopeTtftBudgetBurns", "slo-ttft", "kvscope_ttft", TTFT_OBJECTIVE, "first tokens")
ERRORS = Slo(
    "KvscopeErrorBudgetBurns", "slo-errors", "kvscope_request_errors", ERROR_OBJECTIVE, "requests"
)


def slo_groups(timing: Timing) -> list[Group]:
    return [
        Group(name="kvscope-slo.rules", rules=_recorded(timing), interval="1m"),
        Group(
            name="kvscope-slo",
            rules=[alert for slo in (TTFT, ERRORS) for alert in _alerts(slo)],
            interval="1m",
        ),
    ]


def _recorded(timing: Timing) -> list[Rule]:
    rules: list[Rule] = []
    for slo, judge in ((TTFT, _first_tokens), (ERRORS, _requests)):
        for window in _WINDOWS:
            bad, judged = judge(timing.range(window))
            rules.append(
                Record(
                    record=f"model:{slo.metric}_bad:ratio_rate{window}",
                    expr=f"({bad})\n/ ({judged} > 0)",
                )
            )
        for pair in PAIRS:
            bad, _ = judge(timing.range(pair.long))
            rules.append(
                Record(
                    record=f"model:{slo.metric}_bad:increase{pair.long}",
                    expr=f"({bad}) * {timing.seconds(pair.long):g}",
                )
            )
    return rules


def _first_tokens(window: str) -> tuple[str, str]:
    family = name("kvscope_time_to_first_token_seconds")
    judged = f"sum by (model_name) (rate({family}_count[{window}]))"
    good = f'sum by (model_name) (rate({family}_bucket{{le="{TTFT_SECONDS}"}}[{window}]))'
    return f"{judged} - {good}", judged


def _requests(window: str) -> tuple[str, str]:
    """What the client did (abort, a prompt too long) is no failure; a refusal for want of room
    is, and so is an engine that is dead."""
    finished, rejected = "kvscope_requests_finished_total", "kvscope_requests_rejected_total"
    refused = matching(rejected, "reason", ("queue_full", "engine_dead"))
    failed = matching(finished, "reason", ("error",))
    ended = matching(finished, "reason", ("stop", "length", "error"))
    rate = "sum by (model_name) (rate({}[{}]))".format
    return (
        f"{rate(failed, window)} + {rate(refused, window)}",
        f"({rate(ended, window)} + {rate(refused, window)})",
    )


def _alerts(slo: Slo) -> list[Rule]:
    budget = 1 - slo.objective
    missed = {
        "slo-ttft": f"had no first token within {TTFT_SECONDS} s",
        "slo-errors": "failed or were refused for want of room",
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
            f"{{{{ $labels.model_name }}}} {missed} in the last {pair.long}; "
            f"{budget:.0%} is the budget, and this rate is {pair.factor:g} times that or more.",
            board="kvscope-overview",
            by=("model_name",),
            labels={"window": pair.long},
        )
        for pair in PAIRS
    ]
