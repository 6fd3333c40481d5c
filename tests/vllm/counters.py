"""vLLM's own counters and histograms against those of the same name that were made from events."""

from prometheus_client.parser import text_string_to_metric_families

CLOCK_SECONDS = 0.002
"""What two clocks in one process may read apart at one moment: ours is read after vLLM's or before
it. Latencies that the front end measures are longer by its queues and its work."""
_Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def disagreements(ours: str, theirs: str, *, without: frozenset[str] = frozenset()) -> list[str]:
    """Families of vLLM's names whose values on the two pages differ more than they may.

    Counters and all of token histograms are the same number. Histograms of seconds have the same
    count, and a sum of at most vLLM's. Gauges are left out: they are of two moments.
    """
    own, other = _values(ours, without), _values(theirs, without)
    assert len(own) > 100, "no page of an observed vLLM"
    found = []
    for key, value in sorted(own.items()):
        name, labels = key
        if key not in other:
            found.append(f"{name}{dict(labels)} is not on vLLM's page")
        elif name.endswith("_seconds_sum"):
            count = own[name.removesuffix("_sum") + "_count", labels]
            if value > other[key] + count * CLOCK_SECONDS:
                found.append(f"{name}{dict(labels)} is {value}, in vLLM {other[key]}")
        elif not name.endswith("_seconds_bucket") and value != other[key]:
            found.append(f"{name}{dict(labels)} is {value}, in vLLM {other[key]}")
    return found


def total(page: str, name: str) -> float:
    """Sum over engines and further labels of a counter on a page."""
    return sum(value for (found, _), value in _values(page, frozenset()).items() if found == name)


def _values(page: str, without: frozenset[str]) -> _Values:
    values = {}
    for family in text_string_to_metric_families(page):
        if not family.name.startswith("vllm:") or family.name in without:
            continue
        if family.type in ("counter", "histogram"):
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return values
