"""`--json`: one document with everything that the screen has, under keys that stay.

A figure that is not reported is null, and an answer that is unknown gives its reason.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from exporter import build_version
from kvscope.top.course import latest
from kvscope.top.follower import Seen
from kvscope.top.headline import HEADLINES
from kvscope.top.reading import ASKED, SEQUENCES, EngineReading, ServerReading, Unknown

_API = [question.name for question, _ in ASKED]


class EngineDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One engine; `answers` are those of `/api/NAME`, and the sequences of `/live`."""

    model_name: str
    engine: str
    headline: dict[str, float | None]
    blocks: dict[str, float]
    """By state; empty: not reported."""
    gpus: dict[str, dict[str, float]]
    """Bytes by component, by the uuid of the device; empty: none is split."""
    answers: dict[str, Any]
    unknown: dict[str, str]
    """Question to reason, for those without an answer."""


class ServerDocument(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    at: float
    """Unix time of the reading."""
    state: str | None
    """null: its page does not say."""
    engines: list[EngineDocument]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    place: str
    problem: str


class Document(msgspec.Struct, frozen=True, kw_only=True):
    kvscope: str
    """Version of the command."""
    servers: list[ServerDocument]
    problems: list[Problem]
    """Places that could not be read."""


def document(places: Iterable[Seen]) -> bytes:
    """One line of JSON."""
    places = list(places)
    found = Document(
        kvscope=build_version(),
        servers=[_server(seen, server) for seen in places for server in seen.servers],
        problems=[
            Problem(place=seen.place, problem=seen.problem)
            for seen in places
            if seen.problem is not None
        ],
    )
    return msgspec.json.encode(found)


def _server(seen: Seen, server: ServerReading) -> ServerDocument:
    return ServerDocument(
        server=server.server,
        at=server.at,
        state=server.state or None,
        engines=[_engine(seen, engine) for engine in server.engines],
    )


def _engine(seen: Seen, engine: EngineReading) -> EngineDocument:
    values, figures = seen.courses.get(engine.key, {}), engine.figures
    component = "kvscope_gpu_memory_component_bytes"
    answers = {name: engine.answers[name] for name in (*_API, SEQUENCES)}
    return EngineDocument(
        model_name=engine.name.model_name,
        engine=engine.name.engine,
        headline={one.key: latest(values, one.key) for one in HEADLINES},
        blocks=figures.by("state", "kvscope_kv_blocks"),
        gpus={
            uuid: figures.by("component", component, uuid=uuid)
            for uuid in figures.by("uuid", component)
        },
        answers={
            name: answer for name, answer in answers.items() if not isinstance(answer, Unknown)
        },
        unknown={
            name: answer.reason for name, answer in answers.items() if isinstance(answer, Unknown)
        },
    )
