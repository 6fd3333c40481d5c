"""A server: whether it answers, and whether its page of metrics is valid."""

from collections.abc import Callable, Iterable, Iterator

import httpx
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text

from exporter.diagnosis.finding import Finding, Status

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT_SECONDS = 5.0
_ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;version=0.0.4;q=0.5"
_OPENMETRICS = "application/openmetrics-text"

_Parser = Callable[[str], Iterable[Family]]


def target_findings(url: str, *, asked_for: bool) -> Iterator[Finding]:
    """asked_for False: nothing there is no problem, since nobody said that there was."""
    base = url.rstrip("/")
    with httpx.Client(timeout=TIMEOUT_SECONDS) as client:
        try:
            yield _health(client, base)
            yield _exposition(client, base)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            status: Status = "problem" if asked_for else "note"
            hint = "" if asked_for else "; --url names another one"
            yield Finding("server", status, f"nothing answers at {base}: {error}{hint}")


def _health(client: httpx.Client, base: str) -> Finding:
    answer = client.get(f"{base}/health")
    if answer.status_code == httpx.codes.NOT_FOUND:
        return Finding("server", "note", f"{base} has no /health")
    if answer.is_success:
        return Finding("server", "ok", f"{base} is healthy")
    return Finding("server", "problem", f"{base}/health: {answer.status_code} {answer.text[:200]}")


def _exposition(client: httpx.Client, base: str) -> Finding:
    answer = client.get(f"{base}/metrics", headers={"Accept": _ACCEPT})
    if not answer.is_success:
        return Finding("exposition", "problem", f"{base}/metrics: {answer.status_code}")
    kind = answer.headers.get("content-type", "")
    strict = kind.startswith(_OPENMETRICS)
    parse: _Parser = openmetrics if strict else text
    try:
        families = list(parse(answer.text))
    except ValueError as error:
        return Finding("exposition", "problem", f"{base}/metrics cannot be parsed: {error}")
    series = sum(len(family.samples) for family in families)
    name = "OpenMetrics" if strict else "text format"
    ours = any(family.name.startswith("kvscope_") for family in families)
    whose = "" if ours else ", none of them kvscope's"
    return Finding("exposition", "ok", f"valid {name}, {series} series{whose}")
