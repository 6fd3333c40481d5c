"""The server's own counters, before and after: work of its prefix cache and its scheduler."""

from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kvscope.load.client import describe
from kvscope.load.spec import LoadSpec
from kvscope_events.printable import quoted

_TIMEOUT_SECONDS = 10.0

_Candidates = tuple[tuple[str, dict[str, str]], ...]
"""Names and required labels, in order of preference; the series of a name are summed. A test
compares them with the catalogue, which this package may not import."""

_FIRST = {"phase": "first"}
QUERIED: _Candidates = (
    ("kvscope_prefix_cache_queried_tokens_total", _FIRST),
    ("vllm:prefix_cache_queries_total", {}),
)
HIT: _Candidates = (
    ("kvscope_prefix_cache_hit_tokens_total", _FIRST),
    ("vllm:prefix_cache_hits_total", {}),
)
PREEMPTIONS: _Candidates = (
    ("kvscope_preemptions_total", {}),
    ("vllm:num_preemptions_total", {}),
)


class CountersError(Exception):
    """The metrics could not be read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRate:
    """Tokens of prompts looked up in the prefix cache, and found."""

    queried_tokens: int
    hit_tokens: int

    @property
    def ratio(self) -> float | None:
        """None: there were no look-ups."""
        return self.hit_tokens / self.queried_tokens if self.queried_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """None: not exposed."""

    queried_tokens: float | None = None
    hit_tokens: float | None = None
    preemptions: float | None = None

    def hit_rate_since(self, before: "Counters") -> HitRate | None:
        queried = _increase(before.queried_tokens, self.queried_tokens)
        hit = _increase(before.hit_tokens, self.hit_tokens)
        if queried is None or hit is None:
            return None
        return HitRate(queried_tokens=queried, hit_tokens=hit)

    def preemptions_since(self, before: "Counters") -> int | None:
        return _increase(before.preemptions, self.preemptions)


async def read_counters(http: httpx.AsyncClient, spec: LoadSpec) -> Counters:
    """Raises CountersError. The API key is sent only to the API: metrics may be elsewhere."""
    url = spec.metrics_url or f"{spec.base_url}/metrics"
    try:
        page = await http.get(url, timeout=_TIMEOUT_SECONDS)
    except httpx.HTTPError as error:
        raise CountersError(f"{url}: {describe(error)}") from error
    if not page.is_success:
        raise CountersError(f"{url}: HTTP {page.status_code}")
    try:
        return parse_counters(page.text)
    except ValueError as error:
        raise CountersError(f"{url}: not Prometheus text: {quoted(str(error))}") from error


def parse_counters(exposition: str) -> Counters:
    """Read counters from Prometheus text. Raises ValueError."""
    samples: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    if not samples:
        raise ValueError("it has no sample")

    def first_exposed(candidates: _Candidates) -> float | None:
        for name, required in candidates:
            values = [
                sample.value
                for sample in samples.get(name, ())
                if required.items() <= sample.labels.items()
            ]
            if values:
                return sum(values)
        return None

    return Counters(
        queried_tokens=first_exposed(QUERIED),
        hit_tokens=first_exposed(HIT),
        preemptions=first_exposed(PREEMPTIONS),
    )


def _increase(before: float | None, after: float | None) -> int | None:
    """None if unknown on either side, or if the counter was reset in between."""
    if before is None or after is None or after < before:
        return None
    return round(after - before)
