"""Fetches a page of metrics, parses it, and looks up values by the catalogue's names."""

import time
from dataclasses import dataclass

import httpx
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text

from exporter.catalogue import metric

TIMEOUT_SECONDS = 5.0
MAX_BYTES = 64 << 20
"""A page of 600 series has 100 KB; a document much larger than that is not one."""
_ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;version=0.0.4;q=0.5"
_OPENMETRICS = "application/openmetrics-text"


class ScrapeError(Exception):
    """No page could be read; the message names the URL and the reason."""


class NoAnswerError(ScrapeError):
    """Nothing answers at the URL."""

    def __init__(self, url: str, reason: Exception) -> None:
        super().__init__(f"nothing answers at {url}: {str(reason) or type(reason).__name__}")


@dataclass(frozen=True, slots=True)
class ScrapedPage:
    """A parsed page."""

    families: tuple[Family, ...]
    is_openmetrics: bool
    """Parsed strictly; False: the text format."""

    @property
    def num_series(self) -> int:
        return sum(len(family.samples) for family in self.families)

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of the samples with that name and those labels, or None without any.

        Raises KeyError for a name or label that is not in the catalogue: after a rename it must not
        pass for "nothing exposed".
        """
        unknown = labels.keys() - metric(name).labels.keys()
        if unknown:
            raise KeyError(f"{name} has no label {', '.join(sorted(unknown))}")
        found = [
            sample.value
            for family in self.families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None


def scrape(client: httpx.Client, url: str, timeout: float = TIMEOUT_SECONDS) -> ScrapedPage:
    """Fetch and parse a page within `timeout` seconds. Raises ScrapeError."""
    try:
        body, content_type = _fetch(client, url, time.monotonic() + timeout)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoAnswerError(url, error) from error
    return parse_page(body, content_type, url)


def parse_page(body: bytes, content_type: str, url: str) -> ScrapedPage:
    """Parse as strict OpenMetrics where the content type names it, else as text; ScrapeError."""
    strict = content_type.startswith(_OPENMETRICS)
    parse = openmetrics if strict else text
    try:
        return ScrapedPage(tuple(parse(body.decode())), strict)
    except ValueError as error:  # also what is not UTF-8
        raise ScrapeError(f"{url} cannot be parsed: {error}") from error


def _fetch(client: httpx.Client, url: str, deadline: float) -> tuple[bytes, str]:
    """Limit the whole answer: httpx limits each read, and a slow server could go on forever."""
    body = bytearray()
    with client.stream("GET", url, headers={"Accept": _ACCEPT}) as answer:
        if not answer.is_success:
            raise ScrapeError(f"{url} answered {answer.status_code}")
        for chunk in answer.iter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                raise ScrapeError(f"{url} has more than {MAX_BYTES >> 20} MiB: no page of metrics")
            if time.monotonic() > deadline:
                raise ScrapeError(f"{url} did not end in time")
        return bytes(body), answer.headers.get("content-type", "")
