"""Fetches a metrics page, parses it, and looks up values by the catalogue's names."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TextIO, cast

import httpx
from prometheus_client.openmetrics.parser import text_fd_to_metric_families as openmetrics
from prometheus_client.parser import text_fd_to_metric_families as text

from kvscope.answer_document import AnswerError
from kvscope_exporter.catalogue import metric
from kvscope_exporter.fetch.error import FetchError
from kvscope_exporter.fetch.fetch import MAX_BYTES, Fetcher
from kvscope_exporter.scrape.samples import MAX_LINE

TIMEOUT_SECONDS = 5.0
MAX_LINES = 200_000
"""Maximum lines of a page: a parsed one takes 1,000 bytes, and a page of 600 series has 1,000.
"""
PARSE_SECONDS = 5.0
"""Seconds for one page."""
_MAX_REASON = 200
"""Characters kept of the library's message, which may quote a whole line."""
PAGE_FORMATS = "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;version=0.0.4;q=0.5"
_OPENMETRICS = "application/openmetrics-text"

Sample = tuple[Mapping[str, str], float]
"""Labels and value."""


@dataclass(frozen=True, slots=True)
class ScrapedPage:
    """A parsed page."""

    by_name: Mapping[str, list[Sample]]
    """In the order of the page."""
    is_openmetrics: bool
    """Whether it was parsed strictly; False: the text format."""

    @property
    def num_series(self) -> int:
        return sum(map(len, self.by_name.values()))

    def samples(self, name: str) -> list[Sample]:
        return self.by_name.get(name, [])

    def value(self, name: str, **labels: str) -> float | None:
        """As `total`, of all engines."""
        return total(self.samples(name), name, labels)


def check_labels(name: str, labels: Iterable[str]) -> None:
    """Raises KeyError for a name or label that is not in the catalogue: after a rename, nothing may
    pass for "not reported"."""
    unknown = set(labels) - metric(name).labels.keys()
    if unknown:
        raise KeyError(f"{name} has no label {', '.join(sorted(unknown))}")


def total(samples: Iterable[Sample], name: str, labels: Mapping[str, str]) -> float | None:
    """The sum of the samples of `name` with these labels; None without any. Raises KeyError."""
    check_labels(name, labels)
    found = [value for having, value in samples if labels.items() <= having.items()]
    return sum(found) if found else None


def scrape(client: httpx.Client, url: str, timeout: float = TIMEOUT_SECONDS) -> ScrapedPage:
    """Fetch and parse a page within `timeout` seconds. Raises AnswerError."""
    fetcher = Fetcher(client, url, headers={"Accept": PAGE_FORMATS}, max_bytes=MAX_BYTES)
    try:
        document = fetcher.fetch(timeout)
    except FetchError as error:
        if not error.answered:
            reason = str(error) or type(error).__name__
            raise AnswerError(f"nothing answers at {url}: {reason}") from error
        raise AnswerError(f"{url} {error}") from error
    return parse_page(document.body, document.content_type, url)


def parse_page(body: bytes, content_type: str, url: str) -> ScrapedPage:
    """Parse as strict OpenMetrics if the content type names it, else as text; AnswerError."""
    strict = content_type.startswith(_OPENMETRICS)
    parse = openmetrics if strict else text
    try:
        # Both parsers only iterate over the lines.
        lines = cast(TextIO, _bounded_lines(body.decode()))
        found: dict[str, list[Sample]] = defaultdict(list)
        for family in parse(lines):
            for sample in family.samples:
                value = float(sample.value)  # the library accepts integers of any size
                found[sample.name].append((sample.labels, value))
    except Exception as error:  # not UTF-8, or not a page: the library's errors are of many types
        reason = " ".join(f"{type(error).__name__}: {error}"[:_MAX_REASON].split())
        raise AnswerError(f"{url} cannot be parsed: {reason}") from error
    return ScrapedPage(found, strict)


def _bounded_lines(page: str) -> Iterator[str]:
    """Raises ValueError if the page has too many lines or too long ones, or takes too long."""
    deadline = time.monotonic() + PARSE_SECONDS
    start = 0
    for _ in range(MAX_LINES):
        if start == len(page):
            return
        end = page.find("\n", start) + 1 or len(page)
        if end - start > MAX_LINE:
            raise ValueError(f"a line has more than {MAX_LINE} characters")
        if time.monotonic() > deadline:
            raise ValueError(f"it takes longer than {PARSE_SECONDS:g} s")
        yield page[start:end]
        start = end
    if start < len(page):
        raise ValueError(f"it has more than {MAX_LINES} lines")
