"""Request traces in Mooncake's format: a JSON object per line, in arrival order, blocks as ids."""

import errno
import re
import stat
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec

from kvscope_exporter.fetch.error import JSON_ERRORS

TRACE_BLOCK_TOKENS = 512
"""Prompt tokens behind one entry of `hash_ids`; the format fixes it."""

MAX_LINE_BYTES = 32 << 20
"""A request with a million ids takes some 10 MB."""

_NonNegative = Annotated[int, msgspec.Meta(ge=0)]
_Positive = Annotated[int, msgspec.Meta(gt=0)]
_AT_FIELD = re.compile(r"(?P<problem>.*) - at `\$\.(?P<field>[^`]+)`")


class TraceError(ValueError):
    """A line that is not a request. `str()` reads `trace.jsonl:17: hash_ids: …`."""

    def __init__(self, path: Path, line_number: int, problem: str) -> None:
        super().__init__(f"{path.name}:{line_number}: {problem}")
        self.path = path
        self.line_number = line_number
        self.problem = problem


class TraceRequest(msgspec.Struct, frozen=True, rename={"timestamp_ms": "timestamp"}):
    """One line. Equal ids mean equal content and equal prefix: the ids of a trace form a tree."""

    timestamp_ms: _NonNegative
    input_length: _Positive
    output_length: _NonNegative
    hash_ids: list[_NonNegative]
    """Ids of the prompt's blocks, first to last; the last one is usually partial."""
    session_id: int | str | None = None
    """The conversation, in traces that name it; None: not known."""
    chat_id: int | str | None = None
    """The request, in traces that link turns of a conversation (as Bailian's)."""
    parent_chat_id: int | str | None = None
    """The turn before this one; one that is not in the trace: the conversation begins here."""

    @property
    def num_full_blocks(self) -> int:
        """Leading blocks that an engine can find again if it caches only full blocks."""
        return self.input_length // TRACE_BLOCK_TOKENS


def read_trace(path: Path, limit: int | None = None) -> Iterator[TraceRequest]:
    """Yields the first `limit` requests (None: all), holding one line in memory.

    Raises TraceError at the first bad line, OSError if the file cannot be read.
    """
    decoder = msgspec.json.Decoder(TraceRequest)
    newest_ms = 0
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as file:
        lines = iter(partial(file.readline, MAX_LINE_BYTES + 1), b"")
        for number, line in enumerate(islice(lines, limit), start=1):
            if len(line) > MAX_LINE_BYTES:
                raise TraceError(path, number, f"a line of more than {MAX_LINE_BYTES >> 20} MiB")
            try:
                request = decoder.decode(line)
            except JSON_ERRORS as error:
                raise TraceError(path, number, _describe(error)) from error
            if problem := _inconsistency(request, newest_ms):
                raise TraceError(path, number, problem)
            newest_ms = request.timestamp_ms
            yield request


def _inconsistency(request: TraceRequest, newest_ms: int) -> str | None:
    expected = -(-request.input_length // TRACE_BLOCK_TOKENS)
    if len(request.hash_ids) != expected:
        return (
            f"hash_ids: expected {expected} ids for {request.input_length} tokens, "
            f"got {len(request.hash_ids)}"
        )
    if len(set(request.hash_ids)) != len(request.hash_ids):
        return "hash_ids: an id occurs twice, but an id stands for a block and everything before it"
    if request.timestamp_ms < newest_ms:
        return f"timestamp: {request.timestamp_ms} after {newest_ms}: not in arrival order"
    return None


def _describe(error: Exception) -> str:
    """`Expected …, got … - at `$.field`` → `field: expected …, got …`."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if match := _AT_FIELD.fullmatch(str(error)):
        problem = match["problem"]
        return f"{match['field']}: {problem[0].lower()}{problem[1:]}"
    return str(error)
