"""Every HTTP path of kvscope's servers: its access, reserved connections, and request counting.

A new path needs only a route and its row here; a test finds a route without a row.
"""

from dataclasses import dataclass
from typing import Literal

Door = Literal["open", "shell", "pages", "api", "control"]
"""The key that a request needs: no key, as also for the live page before its data; the key for
metrics pages; the API key; for requests that may change something, the API key or, without any key,
a local request. Where metrics pages need no key, they and the live page need a Host of ours."""

_READING = ("GET", "HEAD", "OPTIONS")
_API = "/v1/"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPath:
    """A path, or with a slash at its end all those below it."""

    path: str
    reading: Door
    """For methods that change nothing."""
    other: Door = "control"
    """For any other method, even one that no route has."""
    keeps_room: bool = False
    """Whether it is answered where there is room for no other request."""
    endless: bool = False
    """Whether its responses go on until the client leaves: a server that ends cuts them off."""
    counted: Literal["GET", "POST"] | None = None
    """Method whose requests are counted under this path; None: not counted."""


ROOT = HttpPath(path="/", reading="pages", other="pages")
HEALTH = HttpPath(path="/health", reading="open", other="open", keeps_room=True)
METRICS = HttpPath(path="/metrics", reading="pages", other="pages", keeps_room=True)
COMPACT = HttpPath(path="/metrics/compact", reading="pages")
SCRAPE = HttpPath(path="/scrape", reading="pages", other="pages")
TARGETS = HttpPath(path="/targets", reading="pages", other="pages")
ANSWERS = HttpPath(path="/api/", reading="pages")
LIVE = HttpPath(path="/live", reading="shell")
LIVE_FILES = HttpPath(path="/live/static/", reading="shell")
LIVE_EVENTS = HttpPath(path="/live/events", reading="pages", endless=True)
LIVE_DATA = HttpPath(path="/live/", reading="pages")

PATHS = (
    *(ROOT, HEALTH, METRICS, COMPACT, SCRAPE, TARGETS, ANSWERS),
    *(LIVE, LIVE_FILES, LIVE_EVENTS, LIVE_DATA),
    HttpPath(path="/v1/completions", reading="api", other="api", counted="POST"),
    HttpPath(path="/v1/chat/completions", reading="api", other="api", counted="POST"),
    HttpPath(path="/v1/models", reading="api", other="api", counted="GET"),
    HttpPath(path="/openapi.json", reading="api"),
    HttpPath(path="/reset_prefix_cache", reading="api"),
)
_EXACT = {row.path: row for row in PATHS}
_BELOW = tuple(row for row in PATHS if row.path.endswith("/") and row is not ROOT)


def row_of(path: str) -> HttpPath | None:
    """The row of a request's path; None: no route has that path."""
    found = _EXACT.get(path)
    if found is not None:
        return found
    return next((row for row in _BELOW if path.startswith(row.path)), None)


def door_of(method: str, path: str) -> Door:
    """The door of a request; for a path without a row the strictest one, except below /v1."""
    row = row_of(path)
    if row is not None:
        return row.reading if method in _READING else row.other
    return "api" if path.startswith(_API) or method in _READING else "control"
