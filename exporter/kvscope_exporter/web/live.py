"""`GET /live`: the page that shows blocks and sequences as they change, and what it reads.

The page's own files hold no data and need no key, so that a browser can load them and ask for one;
everything below `/live/` that says something about a server is behind the door of the pages.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from importlib.resources import files
from typing import Any

import msgspec
from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from kvscope_exporter import build_version
from kvscope_exporter.live.broadcast import Broadcast, Viewer
from kvscope_exporter.live.documents import encode
from kvscope_exporter.live.hub import Engines, Hub, TooManyError, Watchable
from kvscope_exporter.live.view import UnknownHereError
from kvscope_exporter.paths import LIVE, LIVE_DATA, LIVE_EVENTS, LIVE_FILES
from kvscope_exporter.web.answers import NoServerError
from kvscope_exporter.web.landing import ListedServer
from kvscope_exporter.web.metrics import METHODS

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_DATA_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class ServerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One server, and its engines."""

    name: str
    """For `?target=`; empty where there is only one."""
    title: str
    state: str
    engines: Engines


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """`/live/engines`."""

    version: str
    is_replay: bool
    """Whether `/api/replay` moves through time."""
    acts: list[str]
    """Names for `POST /api/demo/ACT`; empty on every server but a demo."""
    servers: list[ServerRow]


def live_router(
    find: Callable[[str], Watchable],
    listed: Callable[[], Sequence[ListedServer]],
    *,
    has_targets: bool,
    is_replay: bool = False,
    acts: Sequence[str] = (),
) -> APIRouter:
    """find: the server named, raises NoServerError. has_targets: servers have names here. acts: of
    a demo, see `Overview`."""

    def found(name: str) -> Watchable:
        try:
            return find(name)
        except NoServerError as error:
            raise UnknownHereError(str(error)) from None

    hub = Hub(found)
    router = APIRouter(include_in_schema=False)
    _page_routes(router)
    _data_routes(router, hub)

    @router.api_route(f"{LIVE_DATA.path}engines", methods=METHODS)
    def engines() -> Response:  # on a worker thread, as all but the stream
        rows = []
        for each in listed():
            name = each.name if has_targets else ""
            try:
                engines = hub.engines(name)
            except UnknownHereError:
                continue  # it has just gone
            state = each.presence.state or "retired"
            rows.append(ServerRow(name=name, title=each.name, state=state, engines=engines))
        return _json(
            Overview(version=build_version(), is_replay=is_replay, acts=list(acts), servers=rows)
        )

    return router


def _page_routes(router: APIRouter) -> None:
    folder = files("kvscope_exporter.live") / "page"
    served = {
        each.name: each.read_bytes()
        for each in folder.iterdir()
        if each.name.endswith(tuple(_TYPES))
    }

    @router.api_route(LIVE.path, methods=METHODS)
    async def page() -> Response:
        return _file("index.html")

    @router.api_route(f"{LIVE_FILES.path}{{name}}", methods=METHODS)
    async def file(name: str) -> Response:
        return _file(name) if name in served else PlainTextResponse("no such file\n", 404)

    def _file(name: str) -> Response:
        kind = _TYPES[f".{name.rpartition('.')[2]}"]
        return Response(served[name], headers=_HEADERS, media_type=kind)


def _data_routes(router: APIRouter, hub: Hub) -> None:
    def answered(target: str, engine: str, read: Callable[[Broadcast], Any]) -> Response:
        try:
            answer = read(hub.broadcast(target, engine))
        except UnknownHereError as error:
            return PlainTextResponse(f"{error}\n", 404)
        if isinstance(answer, bytes):
            return Response(answer, headers=_DATA_HEADERS, media_type="application/octet-stream")
        return PlainTextResponse("not known here\n", 404) if answer is None else _json(answer)

    @router.api_route(f"{LIVE_DATA.path}snapshot", methods=METHODS)
    def snapshot(target: str = "", engine: str = "", blocks: bool = True) -> Response:
        return answered(target, engine, lambda broadcast: broadcast.snapshot(blocks=blocks))

    @router.api_route(f"{LIVE_DATA.path}sequence", methods=METHODS)
    def sequence(id: int, target: str = "", engine: str = "") -> Response:
        return answered(target, engine, lambda broadcast: broadcast.sequence(id))

    @router.api_route(f"{LIVE_DATA.path}block", methods=METHODS)
    def block(id: int, target: str = "", engine: str = "") -> Response:
        return answered(target, engine, lambda broadcast: broadcast.block(id))

    @router.get(LIVE_EVENTS.path)
    def events(target: str = "", engine: str = "") -> Response:
        try:
            hub.check_room()
            broadcast = hub.broadcast(target, engine)
        except UnknownHereError as error:
            return PlainTextResponse(f"{error}\n", 404)
        except TooManyError as error:
            return PlainTextResponse(f"{error}\n", 503)
        headers = {**_DATA_HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(_stream(broadcast), headers=headers, media_type=EVENT_STREAM)


EVENT_STREAM = "text/event-stream"


async def _stream(broadcast: Broadcast) -> AsyncIterator[bytes]:
    viewer = Viewer()
    broadcast.join(viewer)
    try:
        async for event in viewer.events():
            yield event
    finally:
        broadcast.leave(viewer)


def _json(document: msgspec.Struct) -> Response:
    return Response(encode(document), headers=_DATA_HEADERS, media_type="application/json")
