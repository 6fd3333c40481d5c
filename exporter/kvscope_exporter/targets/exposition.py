"""The text formats of a page: negotiated with the scraper, and written faster than usual."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics import exposition as library
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

from kvscope_exporter.collect.families import LabelSet


def text(families: Iterable[Family]) -> bytes:
    """The page in Prometheus' text format, version 0.0.4."""
    parts: list[str] = []
    for family in families:
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


def openmetrics(families: Iterable[Family]) -> bytes:
    """The page in OpenMetrics 1.0."""
    parts: list[str] = []
    for family in families:
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
    if type(labels) is not LabelSet:
        return _label_text(labels)
    text = labels.text
    if text is None:
        text = labels.text = _label_text(labels)
    return text


def _label_text(labels: Mapping[str, str]) -> str:
    pairs = ",".join([f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items())])
    return f"{{{pairs}}}"


def _number(value: float) -> str:
    text = repr(float(value))
    if len(text) < 9 and text[-1] <= "9":  # too short to need an exponent, and not inf
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


Encoder = Callable[[Iterable[Family]], bytes]

_OPENMETRICS = library.CONTENT_TYPE_LATEST


def negotiate(accept: str) -> tuple[Encoder, str]:
    """Encoder and content type for an Accept header: OpenMetrics 1.0 if named, else text.

    A malformed header gets the text format.
    """
    try:
        _, content_type = choose_encoder(accept)
    except TypeError:  # the library compares a non-numeric version with a number
        _, content_type = choose_encoder("")
    # All our names are valid under all escaping schemes, so none of them changes a page.
    if not content_type.startswith("application/openmetrics-text"):
        return text, content_type
    scheme = library.ALLOWUTF8 if library.ALLOWUTF8 in content_type else "underscores"
    return openmetrics, f"{_OPENMETRICS}; escaping={scheme}"


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header takes gzip, by name or as `*`; `q=0` refuses it.

    A malformed weight counts as refused: every client can read a page without gzip.
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
