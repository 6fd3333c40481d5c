"""`GET /api/projection`: a stream for a fleet process, in MessagePack: answers/projection.py."""

import time
from collections.abc import Callable, Mapping

import msgspec
from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from kvscope_events.limits import MAX_LABEL
from kvscope_exporter.answers.projection import projection, read_positions
from kvscope_exporter.paths import ANSWERS
from kvscope_exporter.state.fleet.projected import VERSION, EventsDocument, Part, UnknownEngine
from kvscope_exporter.web.answers import AnswerSource
from kvscope_exporter.web.metrics import METHODS

MEDIA_TYPE = "application/msgpack"


class Projections:
    """The answers of all servers of this process in one document."""

    def __init__(self, servers: Callable[[], Mapping[str, AnswerSource]]) -> None:
        """servers: by name; the name is empty where there is only one."""
        self._servers = servers

    def document(self, positions: str) -> bytes:
        """Raises ValueError for positions that cannot be read."""
        known = read_positions(positions)
        parts: list[Part] = []
        unknown: list[UnknownEngine] = []
        for name, server in self._servers().items():
            for engine in server.answer(projection(name, known)).engines:
                if engine.elsewhere:
                    continue
                if engine.unknown is None:
                    parts.append(engine.answer)
                    continue
                unknown.append(
                    UnknownEngine(
                        server=name,
                        engine=engine.engine,
                        model_name=engine.model_name,
                        reason=engine.unknown[:MAX_LABEL],
                    )
                )
        document = EventsDocument(
            version=VERSION,
            wall_ns=time.time_ns(),
            parts=parts,
            unknown=unknown,
        )
        return msgspec.msgpack.encode(document)


def projection_router(projections: Projections) -> APIRouter:
    """`?after=POSITIONS`; without it everything is new."""
    router = APIRouter(prefix=ANSWERS.path.rstrip("/"))

    @router.api_route("/projection", methods=METHODS, include_in_schema=False)
    def route(after: str = "") -> Response:  # on a worker thread
        try:
            return Response(projections.document(after), media_type=MEDIA_TYPE)
        except ValueError as error:
            return PlainTextResponse(f"after: {error}\n", 400)

    return router
