"""The pages of a recorded server, and the player's controls."""

import msgspec
from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import PlainTextResponse

from kvscope.plan.form import plan_router
from kvscope.replay.moment import parse_moment
from kvscope.replay.player import Player
from kvscope_exporter.paths import HEALTH
from kvscope_exporter.web.answers import answers_router, only
from kvscope_exporter.web.compact import compact_router
from kvscope_exporter.web.landing import ListedServer, landing_router
from kvscope_exporter.web.live import live_router
from kvscope_exporter.web.metrics import METHODS, bare_app, metrics_router

_ENCODE = msgspec.json.Encoder().encode


def replay_app(player: Player) -> FastAPI:
    """`/`, `/metrics`, `/metrics/compact`, `/live`, `/api/...`, `/health` of a recorded server."""
    app = bare_app("kvscope rec play")

    def listed() -> list[ListedServer]:
        return [ListedServer(player.server, player.presence, player)]

    find = only(player, lambda: [player.server])
    app.include_router(landing_router("kvscope rec play", listed, has_targets=False))
    app.include_router(live_router(find, listed, has_targets=False, is_replay=True))
    app.include_router(metrics_router(player))
    app.include_router(compact_router(find))
    app.include_router(answers_router(find))
    app.include_router(plan_router())
    app.include_router(_controls(player))

    @app.api_route(HEALTH.path, methods=METHODS)
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


def _controls(player: Player) -> APIRouter:
    """`GET /api/replay`, and `POST /api/replay/play?speed=`, `pause`, `seek?at=`, `step?by=`."""
    router = APIRouter(prefix="/api/replay", include_in_schema=False)

    def status() -> Response:
        return Response(_ENCODE(player.status()), media_type="application/json")

    @router.api_route("", methods=METHODS)
    def get() -> Response:  # on a worker thread, as all of these: the recording is read on
        return status()

    @router.post("/play")
    def play(speed: float = 1.0) -> Response:
        player.play(speed)
        return status()

    @router.post("/pause")
    def pause() -> Response:
        player.pause()
        return status()

    @router.post("/seek")
    def seek(at: str) -> Response:
        try:
            moment = parse_moment(at, player.file.begins_ns, player.file.ends_ns)
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 400)
        player.seek(moment)
        return status()

    @router.post("/step")
    def step(by: int = 1) -> Response:
        player.step(by)
        return status()

    return router
