"""The question of a reader that follows a fleet: each engine's lookups, gains and losses since.

A reader names the moment that it wants next of each stream. Without one, or after a gap, it also
asks for all names, as they are after the moments of the answer.
"""

import base64
from collections.abc import Mapping
from functools import partial
from typing import Annotated

import msgspec

from kvscope_events.limits import Count, Label
from kvscope_exporter.answers.question import QueryContext, Question, UnknownError
from kvscope_exporter.fetch.error import JSON_ERRORS
from kvscope_exporter.state import Cache, Ledger
from kvscope_exporter.state.fleet.projected import Lost, Part
from kvscope_exporter.state.fleet.projection import Projection


class Position(msgspec.Struct, frozen=True, array_like=True):
    """A reader's place in one stream."""

    seq: Count  # the moment that it wants next
    wants_names: bool  # all of them: it does not know what the pool holds


Positions = Annotated[dict[Label, Position], msgspec.Meta(max_length=1 << 10)]
"""By the session of the stream."""
_DECODER = msgspec.msgpack.Decoder(Positions)
MAX_TEXT = 48 << 10
"""Characters of positions; a request's head has 64 KiB."""


def positions_text(positions: Mapping[str, Position]) -> str:
    """For a URL."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(positions)).decode()


def read_positions(text: str) -> Mapping[str, Position]:
    """Raises ValueError."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"over {MAX_TEXT} characters")
    if not text:
        return {}
    try:
        return _DECODER.decode(base64.urlsafe_b64decode(text))
    except (ValueError, *JSON_ERRORS) as error:
        raise ValueError(str(error)) from None


def projection(server: str, positions: Mapping[str, Position]) -> Question[Part]:
    """The engines of one server, for a reader at these positions."""
    return Question(
        name="projection",
        summary="Lookups, and names that came and went, for `kvscope fleet`.",
        events=("PrefixLookup", "BlocksCached", "BlocksEvicted", "PoolCreated"),
        counted=("PrefixLookup", "NamesStored", "NamesRemoved", "PoolCreated"),
        folds=(Cache, Ledger, Projection),
        read=partial(_read, server, positions),
    )


def _read(server: str, positions: Mapping[str, Position], asked: QueryContext) -> Part:
    hello, ledger = asked.hello, asked.folds[Ledger]
    cache, stream = asked.folds[Cache], asked.folds[Projection]
    if not ledger.block_size:
        raise UnknownError("the pool has not been created yet")
    position = positions.get(hello.session)
    moments, is_gap = stream.since(None if position is None else position.seq)
    is_lost = is_gap or any(isinstance(e, Lost) for m in moments for e in m.events)
    wants_names = position is None or position.wants_names or is_lost
    return Part(
        server=server,
        engine=hello.engine,
        model_name=hello.model_name,
        session=hello.session,
        kind=hello.server,
        name_space=hello.name_space,
        hash_algorithm=hello.prefix_caching_hash_algo,
        block_size=ledger.block_size,
        bytes_per_block=None if ledger.groups else ledger.bytes_per_block or None,
        num_blocks=ledger.num_usable,
        next_seq=stream.next_seq,
        is_gap=is_gap,
        moments=moments,
        held=stream.held(cache.resident) if wants_names and cache.known else None,
    )
