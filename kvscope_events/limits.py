"""Bounds of the contract's values. A reader holds its peer to them; a step pays nothing.

msgspec checks these bounds while it decodes. They keep a broken or hostile peer from exhausting a
reader's memory and from producing a page that no parser accepts. A `Fact` is held to them when it
is made, an event of a step is not: see `kvscope_events.event`.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec

MAX_BLOCKS = 1 << 22
"""Blocks of one pool: 67 million tokens in blocks of 16; a ledger of that size takes 96 MiB when
empty.
"""
MAX_EVENTS = 1 << 18
"""Events of one batch: a step that ends 50,000 sequences."""
MAX_LABEL = 512
"""Characters of a text that becomes a label's value on some hundred series."""

EVENTS = msgspec.Meta(max_length=MAX_EVENTS)
MAX_COUNT = (1 << 62) - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
"""Added to one of our counters, and a counter must never fall."""
Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
Time = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""Nanoseconds of a clock; a reader keeps them in signed words."""
Blocks = Annotated[int, msgspec.Meta(ge=0, le=MAX_BLOCKS)]
Label = Annotated[str, msgspec.Meta(max_length=MAX_LABEL)]
Name = Annotated[str, msgspec.Meta(max_length=64)]
MAX_GROUPS = 64
"""Groups of one pool; published models have at most a dozen."""
GroupIndex = Annotated[int, msgspec.Meta(ge=0, lt=MAX_GROUPS)]
"""Place of a group among those of its pool."""
GroupCounts = Annotated[list[Count], msgspec.Meta(max_length=MAX_GROUPS)]
Hash = Annotated[bytes, msgspec.Meta(max_length=64)]
TraceId = Annotated[str, msgspec.Meta(pattern=r"^(?:[0-9a-fA-F]{32})?\Z")]
"""Label of an exemplar: those may have 128 characters, and parsers do not read all of them."""
SpanId = Annotated[str, msgspec.Meta(pattern=r"^(?:[0-9a-fA-F]{16})?\Z")]
Names = Annotated[list[Name], msgspec.Meta(max_length=256)]
Bytes = Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 62)]
Finite = Annotated[float, msgspec.Meta(gt=-1e18, lt=1e18)]
"""A reader may make a whole number of it."""
Settings = Annotated[dict[Name, Finite], msgspec.Meta(max_length=64)]
Terms = Annotated[dict[Name, Bytes], msgspec.Meta(max_length=64)]
Times = Annotated[dict[Name, Time], msgspec.Meta(max_length=64)]


def label_of(value: object, most: int = MAX_LABEL) -> str:
    """A foreign name or reason as a text that can be written, cut at `most` characters."""
    return str(value)[:most].encode(errors="replace").decode()


def numbers_of(source: object, names: Iterable[str]) -> dict[str, float]:
    """Those of a foreign object's attributes that are numbers, by name."""
    found = {name: getattr(source, name, None) for name in names}
    return {name: float(value) for name, value in found.items() if isinstance(value, (int, float))}


def count_of(value: int | None) -> int:
    """A number that a client chose, such as the tokens it wants, as a count."""
    return min(max(int(value or 0), 0), MAX_COUNT)
