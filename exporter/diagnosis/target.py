"""Checks of a server: whether it answers, and whether its page of metrics is valid."""

from collections.abc import Iterator

import httpx

from exporter.diagnosis.finding import Finding, Status
from exporter.scrape import TIMEOUT_SECONDS, NoAnswerError, ScrapeError, scrape

DEFAULT_URL = "http://127.0.0.1:8000"


def target_findings(url: str, *, asked_for: bool) -> Iterator[Finding]:
    """asked_for: the user named this server, so its silence is a problem and not only a note."""
    base = url.rstrip("/")
    with httpx.Client(timeout=TIMEOUT_SECONDS) as client:
        try:
            yield _health(client, base)
            yield _exposition(client, base)
        except NoAnswerError as error:
            status: Status = "problem" if asked_for else "note"
            hint = "" if asked_for else "; --url names another server"
            yield Finding("server", status, f"{error}{hint}")


def _health(client: httpx.Client, base: str) -> Finding:
    try:
        answer = client.get(f"{base}/health")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoAnswerError(base, error) from error
    if answer.status_code == httpx.codes.NOT_FOUND:
        return Finding("server", "note", f"{base} has no /health")
    if answer.is_success:
        return Finding("server", "ok", f"{base} is healthy")
    return Finding(
        "server", "problem", f"{base}/health answered {answer.status_code}: {answer.text[:200]}"
    )


def _exposition(client: httpx.Client, base: str) -> Finding:
    try:
        page = scrape(client, f"{base}/metrics")
    except NoAnswerError:
        raise
    except ScrapeError as error:
        return Finding("exposition", "problem", str(error))
    name = "OpenMetrics" if page.is_openmetrics else "text format"
    ours = any(family.name.startswith("kvscope_") for family in page.families)
    whose = "" if ours else ", none of them from kvscope"
    return Finding("exposition", "ok", f"valid {name}, {page.num_series} series{whose}")
