"""Service levels of a model: burn rates over pairs of windows, from two recorded rates each.

Long windows are means of the recorded rates: buckets of every server over three days would be the
most expensive query of all.
"""

import json
from typing import Any, NamedTuple

from kvscope_alerts.bare.limits import ERROR_OBJECTIVE, GAP_OBJECTIVE, GAPS_MIN_BAD, SECONDS
from kvscope_alerts.bare.pack import Pack
from kvscope_alerts.bare.server import VLLM
from kvscope_alerts.objectives import if_promised, promise_records
from kvscope_alerts.rule import Alert, Group, Record, Topic
from kvscope_alerts.timing import seconds_of
from kvscope_monitoring.objectives import (
    BURN_MIN_BAD,
    BURN_MIN_BAD_TOKENS,
    BURN_WARN_BAD,
    TTFT_OBJECTIVE,
)

REFUSED = "vllm:admission_rejections_total"
RECORDED = "5m"
"""Range of the recorded rates: the shortest window."""


class Pair(NamedTuple):
    """Both windows must burn: the long one shows that it matters, the short one that it is
    ongoing."""

    factor: float
    long: str
    short: str


class Pace(NamedTuple):
    """Both pairs of a pace share an alert, so they notify once."""

    sign: str
    wait: str
    pairs: tuple[Pair, Pair]
    windows: str


FAST = Pace(
    *("fast", "2m", (Pair(14.4, "1h", "5m"), Pair(6, "6h", "30m"))),
    windows="in the last hour or in the last six",
)
SLOWLY = Pace(
    *("slowly", "1h", (Pair(3, "1d", "2h"), Pair(1, "3d", "6h"))),
    windows="in the last day or in the last three",
)
"""The pairs of Google's SRE workbook: a 30-day budget is used up in 2, 5, 10 and 30 days."""


class Level(NamedTuple):
    """An objective for the share of good ones among all."""

    alert: str
    flag: str
    topic: Topic
    objective: float
    least: int
    """Fewest bad ones in the long window that are a warning, and that page."""
    page: int
    bad: str
    every: str
    """Rates per second."""
    of: str
    """Template: the subject."""
    missed: str
    """Template: what went wrong with the bad ones."""
    budget: str
    """Template: the owner of the budget."""
    by: tuple[str, ...]


def level_groups(pack: Pack) -> list[Group]:
    word = pack.server.word
    levels = (
        ("first_tokens", _first_tokens(pack)),
        ("gaps", _gaps(pack)),
        ("requests", _requests(pack)),
    )
    own = {"ttft": pack.settings.first_token, "itl": pack.settings.gap}
    records = promise_records(own)
    alerts = []
    for name, level in levels:
        bad, every = f"model:{word}_{name}_bad:rate5m", f"model:{word}_{name}:rate5m"
        records += [Record(record=bad, expr=level.bad), Record(record=every, expr=level.every)]
        alerts += _alerts(pack, level, bad, every)
    alerts.sort(key=lambda alert: alert.severity)  # pages first
    return [
        Group(name=f"{word}-levels.rules", rules=[*records], interval="1m"),
        Group(name=f"{word}-levels", rules=[*alerts], interval="1m"),
    ]


def _timely(pack: Pack, family: str) -> str:
    """Observations within the limit, for each model its own."""
    own = pack.settings.limits(family)
    others = [f"model_name!={json.dumps(model)}" for model in own]
    bucket = f"{family}_bucket"
    each = [
        pack.over("rate", bucket, RECORDED, _le(SECONDS[family]), *others),
        *(
            pack.over("rate", bucket, RECORDED, _le(seconds), f"model_name={json.dumps(model)}")
            for model, seconds in own.items()
        ),
    ]
    return " or ".join(each)


def _le(bound: float) -> str:
    """Prometheus 2 keeps the page's form (`2`, `2.0`), Prometheus 3 writes `2.0`."""
    return f'le=~"{bound:g}([.]0)?"' if float(bound).is_integer() else f'le="{bound:g}"'


def _limit(pack: Pack, family: str) -> str:
    """The limit in seconds, as text for a description."""
    text = f"{SECONDS[family]:g}"
    for model, seconds in pack.settings.limits(family).items():
        text = (
            f"{{{{ if eq $labels.model_name {json.dumps(model)} }}}}{seconds:g}"
            f"{{{{ else }}}}{text}{{{{ end }}}}"
        )
    return text


def _by(pack: Pack) -> str:
    return f"sum by ({', '.join(pack.settings.by)})"


def _late(pack: Pack, family: str) -> tuple[str, str]:
    """Late observations and all observations; without the bucket the former are unknown."""
    every = f"{_by(pack)} ({pack.over('rate', f'{family}_count', RECORDED)})"
    return f"{every}\n- {_by(pack)} ({_timely(pack, family)})", every


def _first_tokens(pack: Pack) -> Level:
    family = pack.server.first_token
    bad, every = _late(pack, family)
    return Level(
        alert="TtftBudgetBurns",
        flag="ttft",
        topic="slo-ttft",
        objective=TTFT_OBJECTIVE,
        least=BURN_WARN_BAD,
        page=BURN_MIN_BAD,
        bad=bad,
        every=every,
        of="of the requests to {{ $labels.model_name }}",
        missed=f"had no first token within {_limit(pack, family)} s",
        budget="first tokens",
        by=("model_name",),
    )


def _gaps(pack: Pack) -> Level:
    family = pack.server.gap
    bad, every = _late(pack, family)
    return Level(
        alert="ItlBudgetBurns",
        flag="itl",
        topic="slo-itl",
        objective=GAP_OBJECTIVE,
        least=GAPS_MIN_BAD,
        page=BURN_MIN_BAD_TOKENS,
        bad=bad,
        every=every,
        of="of the tokens of {{ $labels.model_name }}",
        missed=f"came more than {_limit(pack, family)} s after the one before",
        budget="the time between two tokens",
        by=("model_name",),
    )


def _requests(pack: Pack) -> Level:
    """vLLM's engines report how requests ended, and which were refused; for SGLang its HTTP server
    does, which does not know the model."""
    server = pack.server
    if server is VLLM:
        refused = pack.over("rate", REFUSED, RECORDED)
        ends = pack.over("rate", server.ended, RECORDED, 'finished_reason!="abort"')
        errors = pack.over("rate", server.ended, RECORDED, 'finished_reason="error"')
        return Level(
            alert="ErrorBudgetBurns",
            flag="errors",
            topic="slo-errors",
            objective=ERROR_OBJECTIVE,
            least=BURN_WARN_BAD,
            page=BURN_MIN_BAD,
            bad=f"{_by(pack)} ({errors} or {refused})",
            every=f"{_by(pack)} ({ends} or {refused})",
            of="of the requests to {{ $labels.model_name }}",
            missed="failed or were refused by a limit of the queue",
            budget="requests",
            by=("model_name",),
        )
    labels = ("job", *(label for label in pack.settings.by if label != "model_name"))
    by = f"sum by ({', '.join(labels)})"
    post = 'method="POST"'
    every = f"{by} ({pack.over('rate', server.http, RECORDED, post)})"
    failed = f"{by} ({pack.over('rate', server.http, RECORDED, post, server.http_failed)})"
    return Level(
        alert="ErrorBudgetBurns",
        flag="errors",
        topic="slo-errors",
        objective=ERROR_OBJECTIVE,
        least=BURN_WARN_BAD,
        page=BURN_MIN_BAD,
        bad=f"{failed}\nor 0 * {every}",
        every=every,
        of="of the requests to job {{ $labels.job }}",
        missed="were answered with a status of 500 or above",
        budget="requests",
        by=(),
    )


def _alerts(pack: Pack, level: Level, bad: str, every: str) -> list[Alert]:
    """A page, and a warning where it does not page: slowly, with few bad ones, or by a limit that
    was not set for the model."""
    own = if_promised(level.flag)
    page = _burns(level, FAST, bad, every, level.page)
    few = _burns(level, FAST, bad, every, level.least)
    slow = _burns(level, SLOWLY, bad, every, level.least)
    if own:
        page = f"({page})\nand {own}"
    title = pack.server.title
    slowly = f"A model on {title} misses an objective, slowly or with few requests or by a default"
    return [
        _alert(
            pack,
            level,
            FAST,
            page,
            name=level.alert,
            severity="critical",
            summary=f"The error budget of {level.budget} is being used up within days.",
        ),
        *(
            _alert(
                pack,
                level,
                pace,
                expr,
                name="BudgetBurnsSlowly",
                severity="warning",
                summary=f"{slowly} limit.",
                labels={"objective": level.flag, "sign": pace.sign},
            )
            for pace, expr in ((FAST, f"({few})\nunless ({page})"), (SLOWLY, slow))
        ),
    ]


def _alert(pack: Pack, level: Level, pace: Pace, expr: str, **fields: Any) -> Alert:
    return pack.alert(
        topic=level.topic,
        expr=expr,
        wait=pace.wait,
        description=f"{{{{ $value | humanizePercentage }}}} {level.of} {level.missed}, "
        f"{pace.windows}; {100 * (1 - level.objective):.3g}% is the budget.",
        by=level.by,
        **fields,
    )


def _burns(level: Level, pace: Pace, bad: str, every: str, least: int) -> str:
    return "\nor ".join(_pair(level, pair, bad, every, least) for pair in pace.pairs)


def _pair(level: Level, pair: Pair, bad: str, every: str, least: int) -> str:
    limit = f"{pair.factor * (1 - level.objective):.4g}"
    count = f"{_mean(bad, pair.long)} * {seconds_of(pair.long)}"
    return (
        f"({_share(bad, every, pair.long)} > {limit}\n"
        f"and {_share(bad, every, pair.short)} > {limit}\n"
        f"and {count} >= {least})"
    )


def _share(bad: str, every: str, window: str) -> str:
    return f"{_mean(bad, window)} / ({_mean(every, window)} > 0)"


def _mean(name: str, window: str) -> str:
    return name if window == RECORDED else f"avg_over_time({name}[{window}])"
