"""`GET /`: the watched servers, and links to everything; HTML without scripts."""

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple
from urllib.parse import quote

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from kvscope_exporter import build_version
from kvscope_exporter.answers.questions import QUESTIONS
from kvscope_exporter.paths import ROOT
from kvscope_exporter.targets.presence import Presence
from kvscope_exporter.web.metrics import METHODS

_STYLE = (
    "body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:50rem;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{text-align:left;padding:.2rem 1rem .2rem 0}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}"
)
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_DIGEST}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class ListedServer(NamedTuple):
    """A server in the table."""

    name: str
    presence: Presence


def landing_router(
    title: str,
    servers: Callable[[], Sequence[ListedServer]],
    *,
    has_targets: bool,
    has_recordings: bool = False,
) -> APIRouter:
    """servers: those watched now. has_targets: the app has `/scrape` and `/targets`.
    has_recordings: it has `/api/recordings`."""
    pages = _pages(has_targets=has_targets, has_recordings=has_recordings)
    router = APIRouter()

    @router.api_route(ROOT.path, methods=METHODS, include_in_schema=False)
    def landing() -> Response:  # on a worker thread: a state may wait for a page being rendered
        return html(_page(title, pages, servers(), has_targets=has_targets))

    return router


def html(parts: Iterable[str]) -> Response:
    """A page that loads nothing and may not be framed."""
    return HTMLResponse("".join(parts), headers=_HEADERS)


def head(title: str) -> str:
    """The beginning of a page."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{_STYLE}</style></head><body>\n<h1>{escape(title)}</h1>\n"
        f"<p>Version {escape(build_version())}. Metrics of paged-KV inference servers, for "
        "Prometheus.</p>\n"
    )


def _page(
    title: str,
    pages: Sequence[tuple[str, str]],
    servers: Sequence[ListedServer],
    *,
    has_targets: bool,
) -> Iterator[str]:
    yield head(title)
    yield links("Pages", pages)
    yield "<h2>Servers</h2>\n<table><tr><th>server</th><th>state</th><th></th></tr>\n"
    for listed in servers:
        target = f"?target={quote(listed.name, safe='')}" if has_targets else ""
        answers = [(f"/api/{name}{target}", name) for name in QUESTIONS]
        answers.insert(0, (f"/live{target}", "live"))
        if has_targets:
            answers.insert(1, (f"/scrape{target}", "metrics"))
        cells = " ".join(_link(href, text) for href, text in answers)
        state = listed.presence.state or "retired"
        yield f"<tr><td>{escape(listed.name)}</td><td>{state}</td><td>{cells}</td></tr>\n"
    yield "</table>\n"
    if not servers:
        yield "<p>No server is watched.</p>\n"
    yield links(
        "Answers as JSON",
        [(f"/api/{question.name}", question.summary) for question in QUESTIONS.values()],
        live=len(servers) == 1,
    )
    yield "</body></html>\n"


def _pages(*, has_targets: bool, has_recordings: bool) -> list[tuple[str, str]]:
    pages = [
        ("/live", "blocks, sequences and steps as they change"),
        ("/metrics", "the page for Prometheus"),
        ("/metrics/compact", "signals for gateways"),
        ("/health", "whether this process is well"),
    ]
    if has_recordings:
        pages.append(("/api/recordings", "recordings that the flight recorder has saved"))
    if has_targets:
        pages.insert(2, ("/targets", "the list of servers for Prometheus' http_sd_configs"))
    return pages


def links(heading: str, pages: Sequence[tuple[str, str]], *, live: bool = True) -> str:
    """A list of them. live: False: only the paths, since they need a target."""
    items = "".join(
        f"<li>{_link(path, path) if live else escape(path)}: {escape(what)}</li>\n"
        for path, what in pages
    )
    return f"<h2>{escape(heading)}</h2>\n<ul>\n{items}</ul>\n"


def _link(href: str, text: str) -> str:
    return f'<a href="{escape(href)}">{escape(text)}</a>'
