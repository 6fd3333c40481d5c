"""The flight recorder over HTTP: lists, serves and saves recordings.

These routes do not check a key: the app that includes them controls access.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from kvscope_exporter.recorder.flight import SAVE_SECONDS, Flight
from kvscope_exporter.recorder.saved import SavedRecording
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.web.answers import NoServerError
from kvscope_exporter.web.metrics import METHODS


def recordings_router(flight: Flight, find: Callable[[str], Exporter]) -> APIRouter:
    """`GET /api/recordings`, `GET /api/recordings/NAME`, `POST /api/recordings`.

    find: the server named; an empty name stands for the only one. Raises NoServerError.
    """
    router = APIRouter(prefix="/api", include_in_schema=False)

    @router.api_route("/recordings", methods=METHODS)
    def recordings() -> Response:
        return JSONResponse([_listed(saved) for saved in reversed(flight.saved())])

    @router.api_route("/recordings/{name}", methods=METHODS)
    def recording(name: str) -> Response:
        found = next((saved for saved in flight.saved() if saved.name == name), None)
        if found is None:
            return PlainTextResponse("no such recording: see /api/recordings\n", 404)
        chunks = found.read()
        try:
            first = next(chunks, b"")
        except OSError as error:  # it may just have been forgotten for a newer one
            return PlainTextResponse(f"it cannot be read: {error.strerror}\n", 404)
        headers = {"Content-Disposition": f'attachment; filename="{found.name}"'}
        return StreamingResponse(
            chain([first], chunks), media_type="application/octet-stream", headers=headers
        )

    @router.post("/recordings")
    def save(target: str = "") -> Response:  # on a worker thread: a disk may be slow
        try:
            server = find(target)
        except NoServerError as error:
            return PlainTextResponse(f"{error}\n", error.status)
        recorder = server.recorder
        if recorder is None:
            return PlainTextResponse("this server is not recorded\n", 409)
        for each in server.targets:  # what has come up to now is what the user has just seen
            each.pipeline.drain()
        try:
            text = "asked for over HTTP"
            return JSONResponse(
                _listed(flight.save(recorder, "manual", text, seconds=SAVE_SECONDS))
            )
        except OSError as error:
            return PlainTextResponse(f"it cannot be saved: {error.strerror}\n", 507)

    return router


def _listed(saved: SavedRecording) -> dict[str, object]:
    return {
        "name": saved.name,
        "server": saved.server,
        "trigger": saved.trigger,
        "text": saved.text,
        "saved": datetime.fromtimestamp(saved.saved_ns / 1e9, UTC).isoformat(timespec="seconds"),
        "bytes": saved.num_bytes,
        "problem": saved.problem,
    }
