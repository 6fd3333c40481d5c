"""Chooses the text format that a scraper gets, and its encoding."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics import exposition as openmetrics

from exporter.watched import encode

Encoder = Callable[[CollectorRegistry], bytes]

_OPENMETRICS = openmetrics.CONTENT_TYPE_LATEST


def negotiate(accept: str) -> tuple[Encoder, str]:
    """Encoder and content type for an Accept header: OpenMetrics 1.0 where it is named, else text.

    A malformed header gets the text format.
    """
    try:
        _, content_type = choose_encoder(accept)
    except TypeError:  # the library compares a version that is not a number with one that is
        _, content_type = choose_encoder("")
    # All of our names are valid under all schemes of escaping, so none of them changes a page.
    if not content_type.startswith("application/openmetrics-text"):
        return encode.text, content_type
    scheme = openmetrics.ALLOWUTF8 if openmetrics.ALLOWUTF8 in content_type else "underscores"
    return encode.openmetrics, f"{_OPENMETRICS}; escaping={scheme}"


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header takes gzip, by name or as `*`; `q=0` refuses it.

    A malformed weight counts as refused: the page without gzip suits everybody.
    """
    weights: dict[str, float] = {}
    for item in accept_encoding.lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        weights[name] = _weight(parameters)
    named = [weights[name] for name in ("gzip", "x-gzip", "*") if name in weights]
    return bool(named) and named[0] > 0


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
