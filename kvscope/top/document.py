"""`-o json`: one document with everything that the screen has, under keys that stay.

A figure that is not reported is null, and an answer that is unknown gives its reason.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from kvscope.top.course import latest
from kvscope.top.follower import PlaceStatus
from kvscope.top.headline import HEADLINES
from kvscope.top.reading import ASKED, SEQUENCES, EngineReading, ServerReading, UnknownAnswer
from kvscope_exporter import build_version

_COMPONENTS = "kvscope_gpu_memory_component_bytes"


def document(places: Sequence[PlaceStatus]) -> bytes:
    """One line of JSON."""
    found = {
        "kvscope": build_version(),
        "servers": [_server(seen, server) for seen in places for server in seen.servers],
        "problems": [
            {"place": seen.place, "problem": seen.problem}
            for seen in places
            if seen.problem is not None
        ],
    }
    return msgspec.json.encode(found)


def _server(seen: PlaceStatus, server: ServerReading) -> dict[str, Any]:
    return {
        "server": server.server,
        "at": server.at,
        "state": server.state or None,
        "engines": [_engine(seen, engine) for engine in server.engines],
    }


def _engine(seen: PlaceStatus, engine: EngineReading) -> dict[str, Any]:
    values, figures = seen.courses.get(engine.key, {}), engine.figures
    answers = {name: engine.answers[name] for name in (*(q.name for q, _ in ASKED), SEQUENCES)}
    unknown = {name: one.reason for name, one in answers.items() if isinstance(one, UnknownAnswer)}
    return {
        "model_name": engine.name.model_name,
        "engine": engine.name.engine,
        "headline": {one.key: latest(values, one.key) for one in HEADLINES},
        "blocks": figures.by("state", "kvscope_kv_blocks"),
        "gpus": {
            uuid: figures.by("component", _COMPONENTS, uuid=uuid)
            for uuid in figures.by("uuid", _COMPONENTS)
        },
        "answers": {name: one for name, one in answers.items() if name not in unknown},
        "unknown": unknown,
    }
