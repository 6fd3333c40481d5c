"""Definition of a number in a table: the samples of a page, and how they are combined.

    counter("sglang:evicted_tokens") / gauge("sglang:page_size")

A value is None if the page lacks what it needs; it is never filled with 0.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite, prod
from typing import Protocol

Labels = Mapping[str, str]
Rename = Callable[[str], str]
Sample = tuple[Labels, float]


class Unusable(Exception):
    """The page has the samples, but in a form that yields no number."""


class View(Protocol):
    """One engine's samples."""

    num_engines: int
    """Engines on the page."""

    def samples(self, spellings: Sequence[str]) -> Sequence[Sample]:
        """Samples of the first spelling on the page; empty without any. Raises Unusable."""
        ...


class Value:
    """A number of an engine; immutable."""

    def read(self, view: View) -> float | None:
        """Raises Unusable."""
        raise NotImplementedError

    def names(self) -> Iterator[str]:
        """Every sample name that it needs."""
        raise NotImplementedError

    def text(self) -> str:
        """The definition as text, for people."""
        raise NotImplementedError

    def renamed(self, rename: Rename) -> "Value":
        """The same for a server that uses other names."""
        raise NotImplementedError

    @property
    def minuend(self) -> "Value | None":
        """The minuend of a difference."""
        return None

    def __add__(self, other: "Value") -> "Value":
        return _Combination("+", self, other)

    def __sub__(self, other: "Value") -> "Value":
        return _Combination("-", self, other)

    def __mul__(self, other: "Value") -> "Value":
        return _Combination("*", self, other)

    def __truediv__(self, other: "Value") -> "Value":
        return _Combination("/", self, other)

    def beside(self, other: "Value") -> "Value":
        """Known only if the other one is known: a sign of the server's version."""
        return _Combination("beside", self, other)

    def without(self, other: "Value") -> "Value":
        """Known only if the other one is not."""
        return _Combination("without", self, other)


@dataclass(frozen=True, slots=True)
class Number(Value):
    """A constant."""

    value: float

    def read(self, view: View) -> float | None:
        return self.value

    def text(self) -> str:
        return f"{self.value:g}" if self.value != 2**30 else "2³⁰"

    def names(self) -> Iterator[str]:
        return iter(())

    def renamed(self, rename: Rename) -> Value:
        return self


@dataclass(frozen=True, slots=True)
class Engines(Value):
    """The number of engines on the page."""

    def read(self, view: View) -> float | None:
        return view.num_engines

    def text(self) -> str:
        return "number of engines"

    def names(self) -> Iterator[str]:
        return iter(())

    def renamed(self, rename: Rename) -> Value:
        """Other servers divide pages differently: each of their engines has a server of its own."""
        return Number(1)


@dataclass(frozen=True, slots=True)
class Series(Value):
    """Samples with one name, and one of the values listed for each label; `5*` is every text that
    begins with 5."""

    spellings: tuple[str, ...]
    where: tuple[tuple[str, tuple[str, ...]], ...]
    is_summed: bool
    """Sum any number of samples, as for counters. Otherwise there must be one for each listed
    value: two gauges of one engine, from unnamed ranks, have no sum.
    """

    def read(self, view: View) -> float | None:
        found = [
            value
            for labels, value in view.samples(self.spellings)
            if all(_is_one_of(labels.get(label), values) for label, values in self.where)
        ]
        if not found:
            return None
        if not self.is_summed and len(found) > prod(len(values) for _, values in self.where):
            raise Unusable(f"{self.spellings[0]} has {len(found)} values for one engine")
        return sum(found)

    def text(self) -> str:
        where = ", ".join(f'{label}="{"|".join(values)}"' for label, values in self.where)
        return f"`{self.spellings[0]}{{{where}}}`" if where else f"`{self.spellings[0]}`"

    def names(self) -> Iterator[str]:
        return iter(self.spellings)

    def renamed(self, rename: Rename) -> "Series":
        return replace(self, spellings=tuple(map(rename, self.spellings)))


@dataclass(frozen=True, slots=True)
class LabelNumber(Value):
    """A number that is the text of a label, as in `cache_config_info{block_size="16"}`."""

    spellings: tuple[str, ...]
    label: str

    def read(self, view: View) -> float | None:
        texts = {labels.get(self.label, "None") for labels, _ in view.samples(self.spellings)}
        if not texts or texts == {"None"}:
            return None
        text = texts.pop()
        if texts or not text.isascii() or not text.replace(".", "", 1).isdigit():
            raise Unusable(f"{self.spellings[0]}: {self.label} is not a number")
        return float(text)

    def text(self) -> str:
        return f"label {self.label} of `{self.spellings[0]}`"

    def names(self) -> Iterator[str]:
        return iter(self.spellings)

    def renamed(self, rename: Rename) -> Value:
        return replace(self, spellings=tuple(map(rename, self.spellings)))


@dataclass(frozen=True, slots=True)
class Whole(Value):
    """An integer that the page states as a ratio; if it is not an integer, the parts are wrong."""

    of: Value

    def read(self, view: View) -> float | None:
        value = self.of.read(view)
        if value is None:
            return None
        if not isfinite(value) or abs(value - round(value)) > 0.001:
            raise Unusable(f"{value} should be a whole number")
        return float(round(value))

    def text(self) -> str:
        return self.of.text()

    def names(self) -> Iterator[str]:
        return self.of.names()

    def renamed(self, rename: Rename) -> Value:
        return Whole(self.of.renamed(rename))


@dataclass(frozen=True, slots=True)
class IfPlain(Value):
    """One figure for a pool with a single group of layers that see all tokens, another for others.

    In the former a sequence takes a block for each `block_size` tokens, in others more or fewer.
    """

    plain: Value
    other: Value
    blocks: Value
    block_size: Value
    tokens: Value
    """As many as sequences of the longest length have in a full pool, rounded down."""
    sequences: Value

    def read(self, view: View) -> float | None:
        other = self.other.read(view)
        if other is None:
            return None
        parts = (self.blocks, self.block_size, self.tokens, self.sequences)
        blocks, size, tokens, sequences = (part.read(view) for part in parts)
        if not (blocks and size and tokens and sequences):
            return other
        taken = blocks / sequences
        # The blocks of one such sequence, up to a whole one; the page may have rounded figures.
        least, most = tokens / sequences / size, (tokens + 1) / sequences / size
        is_plain = 0.998 * least <= taken <= 1.002 * ceil(1.0005 * most - 0.01)
        return self.plain.read(view) if is_plain else other

    def text(self) -> str:
        return f"{self.plain.text()}; with several groups {self.other.text()}"

    def names(self) -> Iterator[str]:
        for part in self._parts():
            yield from part.names()

    def renamed(self, rename: Rename) -> Value:
        return IfPlain(*(part.renamed(rename) for part in self._parts()))

    def _parts(self) -> Sequence[Value]:
        needed = (self.blocks, self.block_size, self.tokens, self.sequences)
        return (self.plain, self.other, *needed)


def _is_one_of(text: str | None, values: Sequence[str]) -> bool:
    return text in values or any(
        text is not None and value.endswith("*") and text.startswith(value[:-1]) for value in values
    )


_SIGNS = {"+": "+", "-": "-", "*": "×", "/": "÷"}  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class _Combination(Value):
    sign: str
    left: Value
    right: Value

    @property
    def minuend(self) -> Value | None:
        return self.left if self.sign == "-" else None

    def read(self, view: View) -> float | None:
        left = self.left.read(view)
        if left is None:
            return None
        right = self.right.read(view)
        if self.sign == "without":
            return left if right is None else None
        if right is None:
            return None
        if self.sign == "beside":
            return left
        if self.sign == "+":
            return left + right
        if self.sign == "-":
            return left - right
        if self.sign == "*":
            return left * right
        return left / right if right else None

    def text(self) -> str:
        left, right = self.left.text(), self.right.text()
        if self.sign == "beside":
            return f"{left}, beside {right}"
        if self.sign == "without":
            return f"{left}, without {right}"
        if self.sign in "*/":
            left, right = (
                f"({text})" if isinstance(part, _Combination) and part.sign in "+-" else text
                for part, text in ((self.left, left), (self.right, right))
            )
        return f"{left} {_SIGNS[self.sign]} {right}"

    def names(self) -> Iterator[str]:
        yield from self.left.names()
        yield from self.right.names()

    def renamed(self, rename: Rename) -> Value:
        return _Combination(self.sign, self.left.renamed(rename), self.right.renamed(rename))
