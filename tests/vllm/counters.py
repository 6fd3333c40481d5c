"""vLLM's own counters and histograms against those of the same name that were made from events."""

from prometheus_client.parser import text_string_to_metric_families

ROUNDING_SECONDS = 1e-6
"""Error of one observation: sums of seconds are made of nanoseconds here, of floats in vLLM."""
STEP_END_SECONDS = 0.005
"""Error of one sequence: the time between two tokens is that between the ends of two steps here,
and in vLLM that between its outputs, which are a little earlier. Over a sequence these differences
cancel, but for the first token's and the last one's."""
_Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def disagreements(
    ours: str,
    theirs: str,
    *,
    without: frozenset[str] = frozenset(),
    since: tuple[str, str] = ("", ""),
) -> list[str]:
    """Families of vLLM's names whose values on the two pages differ more than they may.

    Counters and all of token histograms are the same number. Histograms of seconds have the same
    count, and a sum of at most vLLM's: its front end measures from before the engine has a request
    until after it has the token. Gauges are left out: they are of two moments.

    since: both pages of an earlier moment, from which on they are compared.
    """
    assert len(_values(ours, frozenset())) > 100, "no page of an observed vLLM"
    own, other = (
        _grown(_values(page, without), _values(before, without))
        for page, before in zip((ours, theirs), since, strict=True)
    )
    found = []
    for key, value in sorted(own.items()):
        name, labels = key
        if key not in other:
            found.append(f"{name}{dict(labels)} is not on vLLM's page")
        elif name.endswith("_seconds_sum"):
            if value > other[key] + _allowed(own, name, labels):
                found.append(f"{name}{dict(labels)} is {value}, in vLLM {other[key]}")
        elif not name.endswith("_seconds_bucket") and value != other[key]:
            found.append(f"{name}{dict(labels)} is {value}, in vLLM {other[key]}")
    return found


def _grown(values: _Values, before: _Values) -> _Values:
    return {key: value - before.get(key, 0) for key, value in values.items()}


def _allowed(own: _Values, name: str, labels: tuple[tuple[str, str], ...]) -> float:
    """Seconds by which a sum may exceed vLLM's."""
    allowed = own[name.removesuffix("_sum") + "_count", labels] * ROUNDING_SECONDS
    if name == "vllm:inter_token_latency_seconds_sum":
        allowed += own["vllm:e2e_request_latency_seconds_count", labels] * STEP_END_SECONDS
    return allowed


def compared(ours: str) -> int:
    """Counters, and parts of histograms, of vLLM's names on the page."""
    return len(_values(ours, frozenset()))


def total(page: str, name: str) -> float:
    """Sum over engines and further labels of a counter on a page."""
    return sum(value for (found, _), value in _values(page, frozenset()).items() if found == name)


def _values(page: str, without: frozenset[str]) -> _Values:
    values = {}
    for family in text_string_to_metric_families(page):
        if not family.name.startswith("vllm:") or family.name in without:
            continue
        if family.type in ("counter", "histogram", "summary"):
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return values
