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
from kvscope_exporter.answers.course import COURSE
from kvscope_exporter.answers.diagnosis.question import WHY
from kvscope_exporter.answers.questions import QUESTIONS
from kvscope_exporter.paths import ROOT
from kvscope_exporter.targets.presence import Presence
from kvscope_exporter.web.answers import AnswerSource
from kvscope_exporter.web.metrics import METHODS

_STYLE = (
    "body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}"
    "table{border-collapse:collapse}"
    "td,th{text-align:left;vertical-align:top;padding:.3rem 1rem .3rem 0}"
    "tr{border-bottom:1px solid #8884}"
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
    source: AnswerSource
    """Its exporter, which says how it is."""


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
    yield "<table><tr>"
    for heading in ("server", "state", "pool active", "running", "waiting", "what is wrong", ""):
        yield f"<th>{heading}</th>"
    yield "</tr>\n"
    for listed in servers:
        target = f"?target={quote(listed.name, safe='')}" if has_targets else ""
        ways = [(f"/live{target}", "live")]
        if has_targets:
            ways.append((f"/scrape{target}", "metrics"))
        cells = (
            escape(listed.name),
            listed.presence.state or "retired",
            *_levels(listed.source),
            _verdict(listed.source),
            " ".join(_link(href, text) for href, text in ways),
        )
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
    yield "</table>\n"
    if not servers:
        yield "<p>No server is watched.</p>\n"
    yield links("Pages", pages)
    yield "<details><summary>API</summary>\n"
    paths = [(f"/api/{question.name}", question.summary) for question in QUESTIONS.values()]
    if has_targets:
        paths = [(f"{path}?target=SERVER", summary) for path, summary in paths]
    yield links("Answers as JSON", paths, live=not has_targets)
    yield "</details>\n</body></html>\n"


def _levels(source: AnswerSource) -> Iterator[str]:
    """Active share of the pools, requests that run and that wait; empty where not known."""
    engines = source.answer(COURSE).engines
    last = [each.answer.slices[-1].levels for each in engines if each.answer and each.answer.slices]

    def total(name: str) -> float | None:
        values = [levels.get(name) for levels in last]
        known = [value for value in values if isinstance(value, (int, float))]
        return sum(known) if known and len(known) == len(engines) else None

    active, usable = total("active"), total("usable")
    yield f"{active / usable:.0%}" if active is not None and usable else ""
    for name in ("running", "waiting"):
        value = total(name)
        yield "" if value is None else f"{value:,.0f}"


def _verdict(source: AnswerSource) -> str:
    """Cause and remedy of the first engine with trouble; empty while nothing is known."""
    answers = [each.answer for each in source.answer(WHY).engines if each.answer is not None]
    for answer in answers:
        if answer.chain:
            remedy = f"<br><b>Do:</b> {escape(answer.remedy)}" if answer.remedy else ""
            return escape(answer.chain[0].text) + remedy
    return "nothing" if answers else ""


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
