"""The server's own counters, before and after: what its prefix cache and its scheduler did."""

import re
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from engine.one_line import quoted
from kvscope.load.documents import DocumentError, Documents
from kvscope.load.spec import LoadSpec

_TIMEOUT_SECONDS = 10.0
_MAX_LINE = 8192
"""Characters; the library takes a time that grows with the square of a line's length."""
_MAX_SAMPLES = 10_000
"""Of the counters that are looked for: thousands of engines on one page."""
_MAX_COUNT = 2.0**63
"""Larger than any counter of tokens; sums of several stay finite."""
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)[{ \t].*$", re.MULTILINE)

_Candidates = tuple[tuple[str, dict[str, str]], ...]
"""Names and required labels, in order of preference; the series of a name are summed. A test holds
them against the catalogue, which this package may not import."""

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


_NAMES = {name for candidates in (QUERIED, HIT, PREEMPTIONS) for name, _ in candidates}


class CountersError(Exception):
    """The metrics could not be read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRate:
    """Tokens of prompts looked up in the prefix cache, and found."""

    queried_tokens: int
    hit_tokens: int

    @property
    def ratio(self) -> float | None:
        """None: nothing was looked up."""
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


async def read_counters(documents: Documents, spec: LoadSpec) -> Counters:
    """Raises CountersError. The API key stays with the API: metrics may be someone else's."""
    url = spec.metrics_url or f"{spec.base_url}/metrics"
    try:
        page = await documents.fetch(url, headers={}, content=None, seconds=_TIMEOUT_SECONDS)
    except DocumentError as error:
        raise CountersError(f"{url}: {error}") from error
    if not page.is_success:
        raise CountersError(f"{url}: HTTP {page.status}")
    try:
        return parse_counters(page.body.decode())
    except ValueError as error:  # not UTF-8, too
        raise CountersError(f"{url}: not Prometheus text: {quoted(str(error))}") from error


def parse_counters(exposition: str) -> Counters:
    """Read counters from Prometheus text; only their lines are parsed. Raises ValueError."""
    samples: dict[str, list[Sample]] = {}
    has_samples = False
    num_parsed = 0
    for match in _SAMPLE.finditer(exposition):
        has_samples = True
        if match["name"] in _NAMES:
            num_parsed += 1
            if num_parsed > _MAX_SAMPLES:
                raise ValueError(f"more than {_MAX_SAMPLES} samples of a few counters")
            sample = _parse(match[0])
            samples.setdefault(sample.name, []).append(sample)
    if not has_samples:
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


def _parse(line: str) -> Sample:
    """Raises ValueError for what is no sample of a counter."""
    if len(line) > _MAX_LINE:
        raise ValueError(f"a line of {len(line)} characters")
    try:
        (sample,) = (s for family in text_string_to_metric_families(line) for s in family.samples)
        value = float(sample.value)  # the library reads whole numbers of any size
    except Exception as error:  # its errors for broken lines are of many types
        raise ValueError(f"{line[:80]!r} cannot be parsed") from error
    if not 0 <= value <= _MAX_COUNT:  # also refuses NaN
        raise ValueError(f"{sample.name} is {value:g}, which no counter can be")
    return sample._replace(value=value)


def _increase(before: float | None, after: float | None) -> int | None:
    """None if unknown on either side, or if the counter began anew in between."""
    if before is None or after is None or after < before:
        return None
    return round(after - before)
