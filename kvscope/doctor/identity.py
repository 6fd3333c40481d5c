"""Identifies the server at a URL: its kind, version and models; every read is bounded."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from kvscope.answer_document import Connection
from kvscope.doctor.scrape import PAGE_FORMATS
from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.fetch.error import JSON_ERRORS, FetchError, FetchErrorKind
from kvscope_exporter.fetch.fetch import Fetcher, Reply
from kvscope_exporter.scrape import TABLES, detect
from kvscope_exporter.scrape.detect import is_declared, may_be_idle, why_unread
from kvscope_exporter.scrape.mapping import PageMapper

READ_SECONDS = 5.0
"""Seconds for one document; a server that is slower than this cannot be scraped either."""
ALL_SECONDS = 20.0
"""Seconds for all documents."""
MAX_MODELS = 16
"""Maximum number of model names to keep."""
_HEADERS = {"Accept": f"{PAGE_FORMATS},application/json;q=0.4", "User-Agent": "kvscope"}
_NO_SERVER = ("connection", "dns", "tls", "timeout", "protocol", "url")
_MODEL = re.compile(r'model_name="((?:[^"\\]|\\.){1,200})"')


@dataclass(slots=True)
class Identity:
    """Facts about a server; None and empty: not reported."""

    url: str
    kind: ServerKind | None = None
    version: str = ""
    models: list[str] = field(default_factory=list)
    page: str | None = None
    """The text of its metrics page."""
    page_format: str = ""
    page_problem: str = ""
    """The reason why there is no page."""
    error: FetchErrorKind | None = None
    """The same in one word."""
    answers: bool = False
    """Whether anything answers there."""
    has_families: bool = False
    """Whether its page has families that can be read."""
    unread: str = ""
    """The reason that its page of metrics gives no value; a phrase about it."""

    @property
    def facts(self) -> dict[str, object]:
        """All facts except the page."""
        return {
            "url": self.url,
            "answers": self.answers,
            "kind": self.kind,
            "version": self.version,
            "models": self.models,
        }


class Asker:
    """Documents of one server, with a time limit for each and one for all."""

    def __init__(self, url: str, connection: Connection = Connection(seconds=READ_SECONDS)) -> None:
        """Raises AnswerError for a file of the connection."""
        self.url = url.rstrip("/")
        self._seconds = connection.seconds
        self._end = time.monotonic() + ALL_SECONDS
        self._client = connection.client(url)

    def __enter__(self) -> "Asker":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str) -> Reply:
        """Raises FetchError."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise FetchError("timeout", "the server has taken too long already")
        fetcher = Fetcher(self._client, self.url + path, headers=_HEADERS)
        return fetcher.fetch(min(self._seconds, left))

    def problem(self, path: str) -> str:
        """The reason why there is no document; empty on success."""
        try:
            self.get(path)
        except FetchError as error:
            return str(error)
        return ""

    def json(self, path: str) -> Mapping[str, object] | None:
        """The JSON object; None for anything else."""
        try:
            content = msgspec.json.decode(self.get(path).body)
        except (FetchError, *JSON_ERRORS):
            return None
        return content if isinstance(content, dict) else None


def identify(asker: Asker) -> Identity:
    """Never raises: facts that cannot be read stay unknown."""
    found = Identity(asker.url)
    _read_page(asker, found)
    if not found.answers:
        return found
    if found.page is not None:
        found.kind = detect(found.page)
    if found.kind is None:
        _probe(asker, found)
    if found.kind is not None:
        _read_version(asker, found)
    _read_families(found)
    return found


def _read_page(asker: Asker, found: Identity) -> None:
    try:
        document = asker.get("/metrics")
    except FetchError as error:
        found.page_problem, found.error = str(error), error.kind
        # A server that does not end its page, or refuses it, does exist.
        found.answers = error.answered or error.kind not in _NO_SERVER
        return
    found.answers = True
    format_ = document.content_type.partition(";")[0].strip().lower()
    if format_ not in ("text/plain", "application/openmetrics-text"):
        found.page_problem = f"is {format_[:60] or 'of no type'}, not a page of metrics"
        return
    found.page = document.body.decode(errors="replace")
    found.page_format = document.content_type


def _probe(asker: Asker, found: Identity) -> None:
    """Identify the kind by endpoints that only one kind has, if its page does not show it."""
    has_other_page = found.page is None and found.error is None
    for path, key, kind in _SIGNS:
        if has_other_page and path == "/version":
            continue  # many servers have one; a vLLM's /metrics is a page of metrics
        content = asker.json(path)
        if content is not None and (not key or key in content):
            found.kind = kind
            return


def _read_version(asker: Asker, found: Identity) -> None:
    path = _VERSIONS.get(found.kind) if found.kind is not None else None
    if path is None:
        return
    version = (asker.json(path) or {}).get("version")
    found.version = version[:40] if isinstance(version, str) else ""


def _read_families(found: Identity) -> None:
    if found.page is None:
        return
    if found.kind is None:
        found.unread = why_unread(found.page, ()) if is_declared(found.page) else ""
        return
    problems: list[str] = []
    for table in TABLES.get(found.kind, ()):
        reading = PageMapper(table).read(found.page, now=time.monotonic())
        found.has_families = found.has_families or bool(reading.engines)
        problems += reading.problems
        found.models += [model for model, _ in reading.engines if model]
    if found.kind == "kvscope":
        found.has_families = True
        found.models += _models_of(found.page)
    if not found.has_families and not may_be_idle(found.kind, found.page):
        found.unread = why_unread(found.page, problems, found.kind)
    found.models = list(dict.fromkeys(found.models))[:MAX_MODELS]


def _models_of(page: str) -> list[str]:
    """The first names on the page; even a page full of names costs little memory."""
    found: dict[str, None] = {}
    for match in _MODEL.finditer(page):
        found[match[1]] = None
        if len(found) == MAX_MODELS:
            break
    return list(found)


_SIGNS: tuple[tuple[str, str, ServerKind], ...] = (
    ("/kv_event_sources", "", "vllm"),
    ("/server_info", "model_path", "sglang"),
    ("/-/routes", "", "ray"),
    ("/props", "default_generation_settings", "llama.cpp"),
    ("/version", "version", "vllm"),
)
"""Path, a key of its answer, and the kind of server that has it; the most specific first."""
_VERSIONS: dict[ServerKind, str] = {
    "vllm": "/version",
    "sglang": "/server_info",
}
