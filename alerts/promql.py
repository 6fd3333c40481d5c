"""Selectors from the catalogue: a typo in a name or a label raises KeyError."""

from exporter.catalogue import metric, name

__all__ = ["matching", "name", "series"]


def series(family: str, **labels: str) -> str:
    """A selector with exact label values, which the catalogue must have."""
    return _selector(family, "=", labels)


def matching(family: str, label: str, values: tuple[str, ...]) -> str:
    """A selector of several values of one label."""
    for value in values:
        _check(family, label, value)
    return f'{family}{{{label}=~"{"|".join(values)}"}}'


def _selector(family: str, operator: str, labels: dict[str, str]) -> str:
    for label, value in labels.items():
        _check(family, label, value)
    inner = ",".join(f'{label}{operator}"{value}"' for label, value in labels.items())
    return f"{name(family)}{{{inner}}}" if inner else name(family)


def _check(family: str, label: str, value: str) -> None:
    closed = metric(family).closed_labels.get(label)
    if label not in metric(family).labels or (closed is not None and value not in closed):
        raise KeyError(f"{family} has no {label}={value!r}")
