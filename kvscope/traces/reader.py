"""The reader of traces: requests in the order of their arrival, whatever the file's dialect."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec

from kvscope.traces.dialects import Dialect, block_size_of, dialect_of, first_rows
from kvscope.traces.request import Names, TraceError, TraceRequest, decoded, padded
from kvscope.traces.sessions import requests_of_conversations, requests_of_turns

_DOUBTS: dict[Dialect, str] = {
    Dialect.AIPERF: "a later turn's prompt is taken for all turns and replies before it, and what "
    "is new; a reply is as long as the trace says",
    Dialect.WEKA: "its sessions have no common clock: all of them begin at once here",
}


class _Line(msgspec.Struct, frozen=True):
    """A request with its whole prompt, as Mooncake and Bailian write it."""

    input_length: Annotated[int, msgspec.Meta(gt=0)]
    hash_ids: list[int]
    timestamp: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """None: together with the line before."""
    output_length: Annotated[int, msgspec.Meta(ge=0)] = 0
    session_id: int | str | None = None
    chat_id: int | str | None = None
    parent_chat_id: int | str | None = None
    """The turn before this one; one that is not in the trace: the conversation begins here."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The requests of a file; each iteration reads it again.

    Iterating raises TraceError at the first bad line, OSError if the file cannot be read.
    """

    path: Path
    dialect: Dialect
    block_size: int
    """Tokens behind one id."""
    limit: int | None = None
    """Requests to yield; None: all."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Facts that its dialect leaves open, with what is taken for them."""
        return (_DOUBTS[self.dialect],) if self.dialect in _DOUBTS else ()

    def __iter__(self) -> Iterator[TraceRequest]:
        yield from islice(self._requests(), self.limit)

    def _requests(self) -> Iterator[TraceRequest]:
        match self.dialect:
            case Dialect.AIPERF:
                yield from requests_of_turns(self.path, self.block_size)
            case Dialect.WEKA:
                yield from requests_of_conversations(self.path, self.block_size)
            case Dialect.MOONCAKE:
                yield from self._whole_prompts(ms=1.0)
            case Dialect.BAILIAN:
                yield from self._whole_prompts(ms=1000.0)

    def _whole_prompts(self, ms: float) -> Iterator[TraceRequest]:
        """Holds one line in memory. ms: milliseconds in the file's unit of time."""
        names, sessions, newest = Names(), dict[Hashable, Hashable](), 0.0
        for number, line in decoded(self.path, _Line):
            if problem := _inconsistency(line, self.block_size, newest):
                raise TraceError(self.path, number, problem)
            newest = newest if line.timestamp is None else line.timestamp
            place = self.path, number
            ids = padded(place, line.hash_ids, line.input_length, self.block_size, ("rest", number))
            yield TraceRequest(
                timestamp_ms=newest * ms,
                input_length=line.input_length,
                output_length=line.output_length,
                hash_ids=names.path(ids),
                block_size=self.block_size,
                session=_session(line, sessions),
            )


def read_trace(
    path: Path,
    limit: int | None = None,
    *,
    dialect: Dialect | None = None,
    block_size: int | None = None,
) -> Trace:
    """A trace, with its dialect and the tokens of a block as its first rows show them.

    Raises TraceError for a line without an end, OSError if the file cannot be read.
    """
    rows = first_rows(path)
    chosen = dialect or dialect_of(rows)
    return Trace(path, chosen, block_size or block_size_of(rows, chosen), limit)


def _inconsistency(line: _Line, block_size: int, newest: float) -> str | None:
    expected = -(-line.input_length // block_size)
    if len(line.hash_ids) not in (expected, line.input_length // block_size):
        return (
            f"hash_ids: expected {expected} ids for {line.input_length} tokens in blocks of "
            f"{block_size} (see --block-size), got {len(line.hash_ids)}"
        )
    if line.timestamp is not None and line.timestamp < newest:
        return f"timestamp: {line.timestamp:g} after {newest:g}: not in arrival order"
    return None


def _session(line: _Line, sessions: dict[Hashable, Hashable]) -> Hashable | None:
    """A turn that names the one before it belongs to the same session."""
    if line.session_id is not None or line.chat_id is None:
        return line.session_id
    session = sessions.get(line.parent_chat_id, line.chat_id)
    sessions[line.chat_id] = session
    return session
