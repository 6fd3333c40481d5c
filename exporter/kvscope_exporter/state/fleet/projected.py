"""The part of a stream that a fleet needs: lookups, and names that came and went.

A name is cut to eight bytes, and all names of an event lie in one string of bytes. Of several
groups only the one is included in whose names lookups ask.
"""

from array import array
from typing import Annotated

import msgspec

from kvscope_events.limits import Blocks, Count, Label, Name, Positive, Time

NAME_BYTES = 8
MAX_NAMES = 1 << 22
NameBytes = Annotated[bytes, msgspec.Meta(max_length=MAX_NAMES * NAME_BYTES)]


class FirstLookup(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="a"):
    """A request was looked up for the first time; `own` of its leading names were found."""

    names: NameBytes
    own: Count


class StoredNames(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="s"):
    """As many blocks became findable under these names: consecutive descendants of `parent`."""

    names: NameBytes
    parent: Annotated[bytes, msgspec.Meta(max_length=NAME_BYTES)] = b""  # empty: none, or unknown


class RemovedNames(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="g"):
    """As many blocks can no longer be found under these names."""

    names: NameBytes


class PoolReset(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="e"):
    """The pool holds nothing: it was created, or all its content was dropped."""


class Lost(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="l"):
    """From now on the pool's content is unknown, until all of it is listed."""


class StepEvents(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The events of one step."""

    seq: Count  # in this projection; grows by one
    wall_ns: Time  # the producer's wall clock
    events: Annotated[
        list[FirstLookup | StoredNames | RemovedNames | PoolReset | Lost],
        msgspec.Meta(max_length=1 << 16),
    ]


class Part(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One engine since a reader's last question."""

    server: Label  # its name in the sidecar; empty: it has none
    engine: Label
    model_name: Label
    session: Label  # of the engine's stream: it changes with every start
    kind: Name  # of the server
    name_space: Label | None  # None: no others can be compared with its names
    hash_algorithm: Label | None
    block_size: Positive  # tokens of a name
    bytes_per_block: Count | None  # None: not known, or not one number for all names
    num_blocks: Blocks
    next_seq: Count  # of the moment that comes next
    is_gap: bool  # moments that the reader has not seen are no longer here
    moments: list[StepEvents]
    held: NameBytes | None  # all names after these moments; None: not asked for, or not known


class UnknownEngine(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An engine without a part, and the reason."""

    server: Label
    engine: Label
    model_name: Label
    reason: Label


class EventsDocument(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A sidecar's answer."""

    version: Count
    wall_ns: Time  # its clock now
    parts: Annotated[list[Part], msgspec.Meta(max_length=1 << 10)]
    unknown: Annotated[list[UnknownEngine], msgspec.Meta(max_length=1 << 10)]


VERSION = 1


def numbers_of(names: bytes) -> "array[int]":
    """Names as whole numbers. Raises ValueError for bytes that are not whole names."""
    numbers = array("Q")
    numbers.frombytes(names)
    return numbers
