"""Checks of a server: whether it answers, what it is, its page, how deeply it can be watched."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvscope.answer_document import AnswerError, Connection
from kvscope.doctor import Finding, Status
from kvscope.doctor.depth import Depths, depths
from kvscope.doctor.fleet import fleet_findings, name_findings
from kvscope.doctor.identity import READ_SECONDS, Asker, Identity, identify
from kvscope.doctor.observers import Observer, observers
from kvscope.doctor.scrape import parse_page
from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.scrape.detect import KNOWN

_HEALTH: frozenset[ServerKind] = frozenset({"kvscope", "vllm", "llama.cpp"})
"""Servers whose /health may be queried; an idle SGLang generates a token for each query."""


@dataclass(frozen=True, slots=True)
class TargetReport:
    findings: list[Finding]
    server: Identity
    depths: Depths | None
    """None: not a known kind of server."""


def target_report(
    url: str,
    *,
    asked_for: bool,
    connection: Connection = Connection(seconds=READ_SECONDS),
    look_for: Callable[[], Iterable[Observer]] = observers,
) -> TargetReport:
    """asked_for: the user named this server, so its silence is a problem, not just a note.

    Raises AnswerError for a file of the connection.
    """
    with Asker(url, connection) as asker:
        server = identify(asker)
        if not server.answers:
            return TargetReport([_silence(server, asked_for)], server, None)
        findings = [_what(server, asked_for), *_page(server)]
        if server.kind is None:
            return TargetReport(findings, server, None)
        if server.kind in _HEALTH:
            findings += _health(asker.problem("/health"))
        fleet = fleet_findings(asker, server)
        if fleet:
            return TargetReport(findings + fleet, server, None)
        here = list(look_for())
        findings += name_findings(here)
        return TargetReport(findings, server, depths(asker, server, here))


def _silence(server: Identity, asked_for: bool) -> Finding:
    status: Status = "problem" if asked_for else "note"
    hint = "" if asked_for else "; name another as in `kvscope doctor HOST:PORT`"
    if server.error == "tls":
        text = f"{server.url}: its certificate is not accepted: {server.page_problem}"
        return Finding("server", status, f"{text}; --ca FILE names the authority to trust")
    if server.error == "timeout":
        return Finding("server", status, f"{server.url} did not answer in time{hint}")
    return Finding(
        "server", status, f"nothing answers at {server.url}: {server.page_problem}{hint}"
    )


def _what(server: Identity, asked_for: bool) -> Finding:
    if server.kind is None and server.unread:
        text = f"{server.url} answers, but its page {server.unread}"
        return Finding("server", "problem" if asked_for else "note", text)
    if server.kind is None:
        text = f"{server.url} answers, but is not a server that kvscope knows ({KNOWN})"
        return Finding("server", "problem" if asked_for else "note", text)
    text = " ".join(part for part in (server.kind, server.version) if part)
    models = f", serving {', '.join(server.models)}" if server.models else ""
    return Finding("server", "ok", f"{text} at {server.url}{models}")


def _health(problem: str) -> list[Finding]:
    if problem in ("", "answered 404"):  # a metrics-only port has none
        return []
    return [Finding("health", "problem", f"/health {problem}")]


def _page(server: Identity) -> list[Finding]:
    if server.page is None:
        return [Finding("page", "problem", f"/metrics {server.page_problem}")]
    try:
        page = parse_page(server.page.encode(), server.page_format, "/metrics")
    except AnswerError as error:
        return [Finding("page", "problem", str(error))]
    name = "OpenMetrics" if page.is_openmetrics else "text format"
    found = [Finding("page", "ok", f"/metrics: valid {name}, {page.num_series} series")]
    if server.kind is not None and server.unread:
        found.append(Finding("page", "problem", f"/metrics {server.unread}"))
    return found
