"""Traces whose rows are sessions or turns of them: put in order of arrival, with whole prompts.

All requests of a file are in memory, since its rows are in the order of their sessions.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Annotated

import msgspec

from kvscope.traces.request import Names, TraceError, TraceRequest, decoded, padded

_MS = 1000.0
_Length = Annotated[int, msgspec.Meta(ge=0)]


class _Turn(msgspec.Struct, frozen=True):
    """AIPerf's: what is new in a turn of a session, which replies come before."""

    input_length: Annotated[int, msgspec.Meta(gt=0)]
    output_length: _Length = 0
    hash_ids: list[int] | None = None
    session_id: int | str | None = None
    timestamp: float | None = None
    delay: float | None = None
    """Milliseconds after the turn before it."""


class _Call(msgspec.Struct, frozen=True, rename={"input_length": "in", "output_length": "out"}):
    """WEKA's: a request with its whole prompt, or a subagent with requests of its own."""

    t: float | None = None
    """Seconds from the session's begin; a subagent's requests may count from its own."""
    timestamp: float = 0.0
    """The same in sessions that others have made of such traces."""
    type: str = "n"
    input_length: _Length = 0
    output_length: _Length | None = 0
    hash_ids: list[int] | None = None
    requests: list["_Call"] | None = None

    @property
    def at(self) -> float:
        return self.timestamp if self.t is None else self.t


class _Conversation(msgspec.Struct, frozen=True):
    requests: list[_Call]
    id: str | int | None = None
    hash_id_scope: str = "local"
    block_size: int | None = None


class _History:
    """A session as far as it has been read."""

    def __init__(self) -> None:
        self.turns = 0
        self.tokens = 0
        self.at = 0.0
        self.ids: Sequence[object] = ()
        """Those of its full blocks."""
        self.first: list[int] = []
        """Those that its first turn gave of them."""


def requests_of_turns(path: Path, block_size: int) -> list[TraceRequest]:
    """AIPerf's sessions. A prompt is all turns and replies before it, and what is new, unless its
    ids begin as those of the session do: then they are the whole prompt.

    Blocks of the first turn are shared by their ids. Later ones are the session's own, because the
    replies before them are. Raises TraceError or OSError.
    """
    names, histories, found = Names(), dict[object, _History](), []
    for number, turn in decoded(path, _Turn):
        session = ("row", number) if turn.session_id is None else turn.session_id
        history = histories.setdefault(session, _History())
        given = turn.hash_ids or []
        is_whole = bool(history.first) and given[: len(history.first)] == history.first
        length = turn.input_length + (0 if is_whole else history.tokens)
        if turn.timestamp is not None:
            history.at = turn.timestamp
        else:
            history.at += turn.delay or 0.0
        full, own = length // block_size, (session, history.turns)
        if is_whole or not history.turns:
            ids = padded((path, number), given, length, block_size, own)
            history.ids = ids[:full]
            history.first = history.first or given[:full]
        else:
            new = range(len(history.ids), full)
            history.ids = [*history.ids, *((session, "block", place) for place in new)]
            ids = padded((path, number), history.ids, length, block_size, own)
        found.append(
            TraceRequest(
                timestamp_ms=history.at,
                input_length=length,
                output_length=turn.output_length,
                hash_ids=names.path(ids),
                block_size=block_size,
                session=turn.session_id,
            )
        )
        history.turns += 1
        history.tokens = length + turn.output_length
    return sorted(found, key=lambda request: request.timestamp_ms)


def requests_of_conversations(path: Path, block_size: int) -> list[TraceRequest]:
    """WEKA's sessions, each with ids of its own unless it says that they are everyone's.

    Raises TraceError or OSError.
    """
    names, found, numbers = Names(), list[TraceRequest](), count()
    for line, conversation in decoded(path, _Conversation):
        if conversation.block_size not in (None, block_size):
            problem = f"block_size: {conversation.block_size}, where others have {block_size}"
            raise TraceError(path, line, problem)
        scope = None if conversation.hash_id_scope == "global" else ("session", line)
        for at, call, length in _calls(conversation.requests, 0.0, block_size):
            owner = ("rest", next(numbers))
            ids = padded((path, line), call.hash_ids or [], length, block_size, owner)
            found.append(
                TraceRequest(
                    timestamp_ms=at * _MS,
                    input_length=length,
                    output_length=call.output_length or 0,
                    hash_ids=names.path(ids, scope),
                    block_size=block_size,
                    session=line if conversation.id is None else conversation.id,
                )
            )
    return sorted(found, key=lambda request: request.timestamp_ms)


def _calls(
    calls: Sequence[_Call], begin: float, block_size: int
) -> Iterator[tuple[float, _Call, int]]:
    """The requests with a prompt, their times and their tokens, those of subagents among them."""
    for call in calls:
        if call.requests is None:
            length = call.input_length or len(call.hash_ids or ()) * block_size
            if length:
                yield begin + call.at, call, length
            continue
        is_relative = any(inner.at < call.at for inner in call.requests)
        yield from _calls(call.requests, begin + call.at if is_relative else begin, block_size)
