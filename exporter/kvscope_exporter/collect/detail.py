"""A lean page: what it has of each family, by the family's row of the catalogue."""

import math
from collections.abc import Iterable, Iterator
from copy import copy

from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from kvscope_exporter.catalogue import CATALOGUE, Metric
from kvscope_exporter.collect.families import LabelSet

_ROWS = {row.family: row for row in CATALOGUE}
_OF_PROCESS = ("process_cpu_seconds", "process_resident_memory_bytes", "process_start_time_seconds")
"""Families that the library makes of this process, as far as they are on a lean page."""


def lean(families: Iterable[Family]) -> Iterator[Family]:
    """The families of a lean page; those given stay as they are."""
    for family in families:
        row = _ROWS.get(family.name)
        if row is None:
            if not family.name.startswith("process_") or family.name in _OF_PROCESS:
                yield family
        elif row.detail == "lean":
            yield _reduced(row, family)


def _reduced(row: Metric, family: Family) -> Family:
    if row.lean_buckets is None and not row.lean_values and not row.lean_without:
        return family
    reduced = copy(family)  # a page that was read before may have it as well
    samples: Iterable[Sample] = family.samples
    for label, values in row.lean_values.items():
        samples = [one for one in samples if one.labels.get(label) in (values or ())]
    if row.lean_buckets is not None:
        samples = _with_fewer_buckets(row, samples)
    if row.lean_without:
        samples = _without(row, samples)
    reduced.samples = list(samples)
    return reduced


def _with_fewer_buckets(row: Metric, samples: Iterable[Sample]) -> Iterator[Sample]:
    """Buckets come in order; an exemplar of one that is left out goes to the next, if that has
    none."""
    samples = list(samples)
    texts = {text: float(text) for one in samples if (text := one.labels.get("le"))}
    kept = {math.inf, *row.lean_bounds(bound for bound in texts.values() if bound < math.inf)}
    exemplar, has_buckets = None, row.lean_buckets != ()
    for one in samples:
        text = one.labels.get("le")
        exemplar = one.exemplar or exemplar
        if text is None or (has_buckets and texts[text] in kept):
            yield one if text is None else one._replace(exemplar=exemplar)
            exemplar = None


def _without(row: Metric, samples: Iterable[Sample]) -> Iterator[Sample]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for one in samples:
        labels = LabelSet((k, v) for k, v in one.labels.items() if k not in row.lean_without)
        key = one.name, tuple(labels.items())
        known = found.get(key)
        value = one.value
        if known is not None:
            value = max(known.value, value) if row.kind == "gauge" else known.value + value
        found[key] = one._replace(labels=labels, value=value)
    yield from found.values()
