"""A page's text, in Prometheus' format and in OpenMetrics: what the library writes, in less time.

A page is rendered in the engine's process, and a step can be held up as long as that takes. The
library escapes every name of every sample each time; ours are valid as they are, and label sets
come again with every page, so their text is kept. Its own encoders are the tests' oracle.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

MAX_LABEL_SETS = 20_000
"""Kept of all pages of this process; then all are forgotten."""

_label_texts: dict[tuple[tuple[str, str], ...], str] = {}


def text(registry: CollectorRegistry) -> bytes:
    """The page in Prometheus' text format, version 0.0.4."""
    parts: list[str] = []
    for family in registry.collect():
        name, kind = family.name, family.type
        if kind == "counter":
            name += "_total"
        elif kind == "info":
            name, kind = f"{name}_info", "gauge"
        help = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
        parts.append(f"# HELP {name} {help}\n# TYPE {name} {kind}\n")
        parts += [
            f"{sample.name}{_labels(sample)} {_number(sample.value)}\n" for sample in family.samples
        ]
    return "".join(parts).encode()


def openmetrics(registry: CollectorRegistry) -> bytes:
    """The page in OpenMetrics 1.0."""
    parts: list[str] = []
    for family in registry.collect():
        name = family.name
        parts.append(
            f"# HELP {name} {_escaped(family.documentation)}\n# TYPE {name} {family.type}\n"
        )
        if family.unit:
            parts.append(f"# UNIT {name} {family.unit}\n")
        parts += _openmetrics_lines(family)
    parts.append("# EOF\n")
    return "".join(parts).encode()


def _openmetrics_lines(family: Family) -> Iterator[str]:
    for sample in family.samples:
        line = f"{sample.name}{_labels(sample)} {_number(sample.value)}"
        yield f"{line}\n" if sample.exemplar is None else f"{line}{_exemplar(sample.exemplar)}\n"


def _labels(sample: Sample) -> str:
    labels = sample.labels
    if not labels:
        return ""
    key = tuple(labels.items())
    text = _label_texts.get(key)
    if text is None:
        if len(_label_texts) >= MAX_LABEL_SETS:
            _label_texts.clear()
        text = ",".join([f'{name}="{_escaped(value)}"' for name, value in sorted(key)])
        text = _label_texts[key] = f"{{{text}}}"
    return text


def _number(value: float) -> str:
    text = repr(float(value))
    if len(text) < 9 and text[-1] <= "9":  # neither so large that it needs an exponent, nor inf
        return text
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def _exemplar(exemplar: Exemplar) -> str:
    labels = ",".join(f'{k}="{_escaped(v)}"' for k, v in sorted(exemplar.labels.items()))
    number = floatToGoString(exemplar.value)  # type: ignore[no-untyped-call]
    if exemplar.timestamp is None:
        return f" # {{{labels}}} {number}"
    return f" # {{{labels}}} {number} {exemplar.timestamp}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
