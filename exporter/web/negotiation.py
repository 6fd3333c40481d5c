"""Which text format a scraper gets, and how it is encoded."""

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics import exposition as openmetrics

Encoder = Callable[[CollectorRegistry], bytes]

_OPENMETRICS = openmetrics.CONTENT_TYPE_LATEST


def negotiate(accept: str) -> tuple[Encoder, str]:
    """Encoder and content type for an Accept header: OpenMetrics 1.0 where it is named, else text.

    A header that makes no sense gets the text format.
    """
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # the library compares a version that is no number with one that is
        encode, content_type = choose_encoder("")
    if not content_type.startswith("application/openmetrics-text"):
        return encode, content_type
    # The library turns the colon of `vllm:` into an underscore under every scheme but
    # allow-utf-8 (client_python issue 1177). Our names are legal as they are: that one serves all.
    scheme = openmetrics.ALLOWUTF8 if openmetrics.ALLOWUTF8 in content_type else "underscores"
    return (
        partial(openmetrics.generate_latest, escaping=openmetrics.ALLOWUTF8),
        f"{_OPENMETRICS}; escaping={scheme}",
    )
