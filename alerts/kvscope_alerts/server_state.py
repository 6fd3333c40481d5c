"""Alerts about a server's start, from its page: `kvscope_server_state`.

The page of a server that is configured, or has been seen, stays, whatever happens to the server;
`up` is then only that of its exporter.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from kvscope_alerts.recordings import LAST_ANSWER, READY_SEEN
from kvscope_alerts.rule import SERVER, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import JOB, LOADING, SEEN, SILENCE_SECONDS
from kvscope_alerts.timing import Timing, seconds_of
from kvscope_monitoring.selectors import series

_EXPECTED, _LOADING, _GONE = 1, 2, 3
"""Values of the alert's expression, for its text."""
_STATES = {"expected": _EXPECTED, "loading": _LOADING, "gone": _GONE}


def state_groups(timing: Timing, scope: Scope, loading: Mapping[str, str]) -> list[Group]:
    """loading: time that a model may take to load, for models that differ."""
    rules = [*_not_ready(timing, scope, loading), _never_up(timing, scope)]
    return [Group(name="kvscope-server-state", rules=[*rules])]


def in_state(state: str, timing: Timing) -> str:
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
    states = "\n  or ".join(f"{n} * ({in_state(name, timing)})" for name, n in _STATES.items())
    ended = f"({in_state('gone', timing)} and {same} {READY_SEEN} == 1)"
    plain = f"max without (state) (\n  {states}\n)\nunless {same} {ended}"
    plain += f"\nunless {same} {silent(timing)}"
    named = f"({plain})\n+ {same} group_left (model_name) 0 * {LAST_ANSWER}"
    alert = _alert(
        "state",
        named,
        LOADING,
        f"{SERVER} is not ready after a time in which it should have loaded its model: "
        f"{{{{ if eq $value {_EXPECTED}.0 }}}}it is expected, and nothing has been heard of it"
        f"{{{{ else if eq $value {_LOADING}.0 }}}}it is loading"
        "{{ else }}it has ended before it was ready{{ end }}.",
    )
    if not loading:
        return [alert]
    known = "|".join(map(re.escape, loading))
    return [
        replace(alert, expr=f"{named}\nunless {same} {_of(known)}"),
        *(
            replace(
                alert,
                expr=f"{named}\nand {same} {_of(re.escape(model))}",
                wait=wait,
                labels={**alert.labels, "loading": wait},
            )
            for model, wait in loading.items()
        ),
    ]


def _alert(sign: str, expr: str, wait: str, description: str) -> Alert:
    return Alert(
        name="KvscopeServerNotReady",
        severity="warning",
        topic="target",
        expr=expr,
        wait=wait,
        summary="An inference server does not come up.",
        description=description,
        board="kvscope-overview",
        by=("model_name", "instance"),
        labels={"sign": sign},
    )


def _of(models: str) -> str:
    return f"{LAST_ANSWER}{{model_name=~{json.dumps(models)}}}"


def _never_up(timing: Timing, scope: Scope) -> Alert:
    """It begins to wait before the server that answered once is forgotten, so there is no gap."""
    wait = "30m"
    known = timing.seconds(SEEN) - (seconds_of(wait) if timing.divisor == 1 else 0)
    return _alert(
        "unanswered",
        f'up{{job="{JOB}"}} == 0\nunless on ({scope.server}) (time() - {LAST_ANSWER} < {known:g})',
        wait,
        f"Prometheus has had no answer from {SERVER} (job {{{{ $labels.job }}}}) for half an hour, "
        "nor in the week before: it does not start, or is not where service discovery says.",
    )
