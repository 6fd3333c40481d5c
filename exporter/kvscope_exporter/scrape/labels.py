"""The vocabulary of tables: gauge, counter, histogram, and what is derived from them.

A name is written with the server's colon, counters without `_total`; a page may spell it with `_`,
without the server in some cases, and with or without `_total`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvscope_exporter.scrape.value import LabelNumber, Rename, Series

_WITHOUT_PREFIX = ("vllm",)
"""Servers whose names are passed on without their prefix as well, as NVIDIA NIM does."""


def gauge(name: str, **where: str | tuple[str, ...]) -> Series:
    """An engine's single sample; where: label values, a tuple for values to be added."""
    return Series(_spellings(name), _listed(where), is_summed=False)


def counter(name: str, **where: str | tuple[str, ...]) -> Series:
    """The sum of an engine's samples; `name` without `_total`."""
    spellings = _spellings(name)
    totals = tuple(f"{spelling}_total" for spelling in spellings)
    return Series((*totals, *spellings), _listed(where), is_summed=True)


def sum_of(histogram: str) -> Series:
    """The sum of a histogram's observations."""
    return Series(tuple(f"{s}_sum" for s in _spellings(histogram)), (), is_summed=True)


def count_of(histogram: str) -> Series:
    """The number of a histogram's observations."""
    return Series(tuple(f"{s}_count" for s in _spellings(histogram)), (), is_summed=True)


def label(name: str, label: str) -> LabelNumber:
    """A number in a label of an info family."""
    return LabelNumber(_spellings(name), label)


@dataclass(frozen=True, slots=True)
class PassedHistogram:
    """A histogram of the server's, with its own buckets; series of one engine are added."""

    spellings: tuple[str, ...]

    def names(self) -> Iterator[str]:
        for spelling in self.spellings:
            yield from (f"{spelling}_bucket", f"{spelling}_sum", f"{spelling}_count")

    def text(self) -> str:
        return f"`{self.spellings[0]}`"

    def renamed(self, rename: Rename) -> "PassedHistogram":
        return PassedHistogram(tuple(map(rename, self.spellings)))


@dataclass(frozen=True, slots=True)
class LastMoved:
    """Least possible time since a count's last change, as far as pages show it."""

    of: Series

    def names(self) -> Iterator[str]:
        return self.of.names()

    def text(self) -> str:
        return f"since {self.of.text()} was first seen to have its value"

    def renamed(self, rename: Rename) -> "LastMoved":
        return LastMoved(self.of.renamed(rename))


def histogram(name: str) -> PassedHistogram:
    return PassedHistogram(_spellings(name))


def _spellings(name: str) -> tuple[str, ...]:
    server, colon, rest = name.partition(":")
    bare = (rest,) if server in _WITHOUT_PREFIX else ()
    return (name, f"{server}_{rest}", *bare) if colon else (name,)


def _listed(where: Mapping[str, str | tuple[str, ...]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((k, (v,) if isinstance(v, str) else v) for k, v in where.items())
