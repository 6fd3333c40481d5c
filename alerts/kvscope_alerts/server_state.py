"""Alerts about a server's start and end, from its page: `kvscope_server_state`.

The page of a server that is configured, or has been seen, stays, whatever happens to the server;
`up` is then only that of its exporter.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from kvscope_alerts.paging import paged_below
from kvscope_alerts.recordings import LAST_ANSWER, READY_SEEN
from kvscope_alerts.rule import SERVER, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import LOADING, SILENCE_SECONDS
from kvscope_alerts.timing import Timing
from kvscope_monitoring.selectors import series

_EXPECTED, _LOADING, _GONE = 1, 2, 3
"""Values of the alert's expression, for its text."""
_STATES = {"expected": _EXPECTED, "loading": _LOADING, "gone": _GONE}


def state_groups(
    timing: Timing, scope: Scope, page_below: int, loading: Mapping[str, str]
) -> list[Group]:
    """loading: time that a model may take to load, for models that differ."""
    return [
        Group(
            name="kvscope-server-state",
            rules=[
                *_not_ready(timing, scope, loading),
                *paged_below(_gone(timing, scope), scope, page_below),
            ],
        )
    ]


def _in(state: str, timing: Timing) -> str:
    """Servers in the state."""
    return f"{timing.last(series('kvscope_server_state', state=state))} == 1"


def silent(timing: Timing) -> str:
    """Parts of engines that were ready and are not heard any more; their servers do not start."""
    silence = timing.last(series("kvscope_engine_silence_seconds"))
    return f"{silence} > {timing.seconds(f'{SILENCE_SECONDS}s'):g}"


def _not_ready(timing: Timing, scope: Scope, loading: Mapping[str, str]) -> list[Alert]:
    """Whatever state it is in: a server that crashes while loading is loading, then gone, and so
    on. A server that was ready and has gone is a different alert. One expression for all states, so
    that changing between them does not restart the wait."""
    same = f"on ({scope.server})"
    states = "\n  or ".join(f"{value} * ({_in(name, timing)})" for name, value in _STATES.items())
    ended = f"({_in('gone', timing)} and {same} {READY_SEEN} == 1)"
    plain = f"max without (state) (\n  {states}\n)\nunless {same} {ended}"
    plain += f"\nunless {same} {silent(timing)}"
    named = f"({plain})\n+ {same} group_left (model_name) 0 * {LAST_ANSWER}"
    alert = Alert(
        name="KvscopeServerNotReady",
        severity="warning",
        topic="target",
        expr=named,
        wait=LOADING,
        summary="An inference server does not become ready.",
        description=f"{SERVER} is not ready after a time in which it should have loaded its model: "
        f"{{{{ if eq $value {_EXPECTED}.0 }}}}it is expected, and nothing has been heard of it"
        f"{{{{ else if eq $value {_LOADING}.0 }}}}it is loading"
        "{{ else }}it has ended before it was ready{{ end }}.",
        board="kvscope-overview",
        by=("model_name", "instance"),
    )
    if not loading:
        return [alert]
    known = "|".join(map(_literally, loading))
    return [
        replace(alert, expr=f"{named}\nunless {same} {_of(known)}"),
        *(
            replace(
                alert,
                expr=f"{named}\nand {same} {_of(_literally(model))}",
                wait=wait,
                labels={"loading": wait},
            )
            for model, wait in loading.items()
        ),
    ]


def _literally(model: str) -> str:
    """A model's name, escaped for a regular expression."""
    return re.escape(model)


def _of(models: str) -> str:
    return f"{LAST_ANSWER}{{model_name=~{json.dumps(models)}}}"


def _gone(timing: Timing, scope: Scope) -> Alert:
    same = f"on ({scope.server})"
    return Alert(
        name="KvscopeServerGone",
        severity="critical",
        topic="target",
        expr=f"({_in('gone', timing)} and {same} {READY_SEEN} == 1)\n"
        f"+ {same} group_left (model_name) 0 * {LAST_ANSWER}",
        wait="5m",
        summary="An inference server that was ready has ended.",
        description=f"{SERVER} was ready and has ended, in an orderly way or not; its exporter has "
        "heard nothing of it for five minutes. It serves nothing until it is started again.",
        board="kvscope-overview",
        by=("model_name", "instance"),
    )
