"""Alerts about a model whose engines are gone, all of them or some."""

import json
from collections.abc import Callable, Collection

from kvscope_alerts.engine_down import DOWN, DOWN_SUMMARY, blind
from kvscope_alerts.recordings import ENGINES, ENGINES_SEEN, LAST_ANSWER
from kvscope_alerts.rule import COUNT, MODEL, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import GONE_FOR, JOB
from kvscope_alerts.timing import Timing
from kvscope_alerts.wanted import complete, unwanted
from kvscope_monitoring.selectors import series


def fleet_groups(timing: Timing, scope: Scope, to_zero: Collection[str]) -> list[Group]:
    """to_zero: models that may have fewer engines, or none, at any time."""
    rules = [_gone(scope, to_zero), _fewer(timing, scope, to_zero)]
    return [Group(name="kvscope-fleet", rules=[*rules])]


def _without(record: str, models: Collection[str]) -> str:
    if not models:
        return record
    return f"{record}{{{','.join(f'model_name!={json.dumps(model)}' for model in models)}}}"


def _relabelled(before: Callable[[str], str], scope: Scope) -> str:
    """Models that only gained a place label, such as `cluster`: under the old labels they are
    gone."""
    clauses = []
    for label in scope.place:
        without, present = f'{label}=""', f'{label}!=""'
        clauses.append(
            f"\nunless on ({scope.model}) (\n"
            f"  {before(without)} and on (model_name) {ENGINES}{{{present}}}\n)"
        )
    return "".join(clauses)


def _matching(record: str, matcher: str) -> str:
    head, brace, rest = record.partition("{")
    return f"{head}{{{matcher},{rest}" if brace else f"{head}{{{matcher}}}"


def _gone(scope: Scope, to_zero: Collection[str]) -> Alert:
    seen = _without(ENGINES_SEEN, to_zero)
    renamed = _relabelled(lambda matcher: _matching(seen, matcher), scope)
    ready = series("kvscope_server_state", state="ready")
    return Alert(
        name="KvscopeModelGone",
        severity="critical",
        topic="fleet",
        expr=f"{seen}\nunless on ({scope.model}) {ENGINES}\n"
        # no engine is heard, but its server answers: only its sockets have vanished
        f"unless on ({scope.model}) (\n  {LAST_ANSWER} and on ({scope.server}) {ready} == 1\n)\n"
        f"unless on ({scope.model}) (\n  {LAST_ANSWER} and on ({scope.server}) ({blind(scope)})\n)"
        f"{renamed}\nunless on ({scope.model}) {unwanted(scope)}",
        wait="5m",
        summary="No engine serves a model any more.",
        description=f"{MODEL} has had up to {COUNT} engines within the last {GONE_FOR}, and none "
        "has been heard for five minutes: unless only their sidecars have failed, or the model was "
        "retired, requests to it fail.",
        board="kvscope-overview",
        by=("model_name",),
    )


def _fewer(timing: Timing, scope: Scope, to_zero: Collection[str]) -> Alert:
    """A pod that was deleted leaves no `up`. Longer than a large model takes to load in a roll-out,
    so that a replica that is being replaced does not count as lost.

    A server that has not come up yet, so that its model is unknown, may be the missing one: each
    explains one engine, and no more.
    """
    ago, engines = timing.range("1h"), _without(ENGINES, to_zero)
    before = f"({engines} offset {ago})"
    renamed = _relabelled(lambda matcher: f"{_matching(engines, matcher)} offset {ago}", scope)
    state = series("kvscope_server_state", state="ready")
    up, known = f'up{{job="{JOB}"}}', f'{LAST_ANSWER}{{model_name!=""}}'
    silent = f"({state} == 0 or {up} == 0)\n    unless on ({scope.server}) {known}"
    place = ", ".join(scope.place)
    unknown = f"count by ({place}) (\n    {silent}\n  )"
    lost = f"({before} - ({engines} or 0 * {before}) > 0)"
    return Alert(
        name=DOWN,
        severity="warning",
        topic="fleet",
        expr=f"(\n  {lost}\n  > on ({place}) group_left () {unknown}\n"
        f"  or ({lost} unless on ({place}) {unknown})\n){renamed}\n"
        f"unless on ({scope.model}) {complete(scope)}\nunless on ({scope.model}) {unwanted(scope)}",
        wait="30m",
        summary=DOWN_SUMMARY,
        description=f"{MODEL} has had {COUNT} engines fewer than an hour before, for half an hour: "
        "they are gone, and the others have their load.",
        board="kvscope-overview",
        by=("model_name",),
        labels={"sign": "fewer"},
    )
