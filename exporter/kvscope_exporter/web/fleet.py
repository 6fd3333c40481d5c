"""The app of `kvscope fleet`: its page for Prometheus, and its answer as a table and as JSON."""

from collections.abc import Iterator
from html import escape

import msgspec
from fastapi import APIRouter, FastAPI, Response

from kvscope_exporter.fleet.answer import FleetAnswer, SpaceAnswer, fleet_answer
from kvscope_exporter.fleet.fleet import Fleet
from kvscope_exporter.paths import ANSWERS, HEALTH, ROOT
from kvscope_exporter.web.landing import head, html, links
from kvscope_exporter.web.metrics import METHODS, Exposition, bare_app, metrics_router

_ENCODER = msgspec.json.Encoder()
_PAGES = [
    ("/metrics", "the page for Prometheus"),
    ("/api/fleet", "the same as below as JSON, with the curve of a shared tier"),
    ("/health", "whether this process is well"),
]


def fleet_router(fleet: Fleet) -> APIRouter:
    """`GET /api/fleet`: the waterfalls, the tiers, the replicas and why some are not counted."""
    router = APIRouter(prefix=ANSWERS.path.rstrip("/"))

    @router.api_route("/fleet", methods=METHODS, include_in_schema=False)
    def route() -> Response:  # on a worker thread
        return Response(_ENCODER.encode(fleet_answer(fleet)), media_type="application/json")

    return router


def fleet_app(page: Exposition, fleet: Fleet) -> FastAPI:
    """`/`, `/metrics`, `/api/fleet` and `/health`."""
    app = bare_app("kvscope fleet")
    app.include_router(metrics_router(page))
    app.include_router(fleet_router(fleet))

    @app.api_route(ROOT.path, methods=METHODS)
    def landing() -> Response:  # on a worker thread
        return html(_page(fleet_answer(fleet)))

    @app.api_route(HEALTH.path, methods=METHODS)
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


def _page(answer: FleetAnswer) -> Iterator[str]:
    yield head("kvscope fleet")
    yield links("Pages", _PAGES)
    for space in answer.spaces:
        yield from _waterfall(space)
    yield "<h2>Replicas</h2>\n<table><tr><th>sidecar</th><th>server</th><th>engine</th>"
    yield "<th>model</th><th>state</th><th>found</th><th></th></tr>\n"
    for replica in answer.replicas:
        asked = replica.asked_blocks
        cells = (
            replica.sidecar,
            replica.server,
            replica.engine,
            replica.model_name,
            replica.state,
            f"{replica.own_blocks / asked:.1%}" if asked else "",
            replica.reason,
        )
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>\n"
    yield "</table>\n"
    for line in answer.apart:
        yield f"<p>{escape(line)}</p>\n"
    yield "</body></html>\n"


def _waterfall(space: SpaceAnswer) -> Iterator[str]:
    yield f"<h2>{escape(space.model_name)}</h2>\n<p>{escape(space.sentence)}</p>\n<table>"
    if space.asked_blocks:
        for name, blocks in (
            ("found", space.own_blocks),
            ("on one replica", space.best_blocks),
            ("on some replica", space.anywhere_blocks),
            ("asked for before", space.seen_blocks),
            ("asked for", space.asked_blocks),
        ):
            share = blocks / space.asked_blocks
            yield f"<tr><td>{name}</td><td>{blocks:,}</td><td>{share:.1%}</td></tr>\n"
    yield "</table>\n"
    for proposal in space.proposals:
        yield f"<p><b>{escape(proposal.text)}</b> Price: {escape(proposal.price)}</p>\n"
