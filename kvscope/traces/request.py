"""One request of a trace, whatever the dialect of its file; lines, and what is wrong with one."""

import errno
import gzip
import re
import stat
import zlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TypeVar, cast

import msgspec

from kvscope_exporter.fetch.error import JSON_ERRORS

MAX_LINE_BYTES = 64 << 20
"""A request with a million ids takes some 10 MB, a recorded session up to 30 MB."""
GZIP = b"\x1f\x8b"
"""The begin of a compressed file."""
_MAX_DOCUMENT_BYTES = 512 << 20
"""A file that is one JSON object on many lines, which a session may be."""
_T = TypeVar("_T")
_AT_FIELD = re.compile(r"(?P<problem>.*) - at `\$\.(?P<field>[^`]+)`")


class TraceError(ValueError):
    """A line that is not a request. `str()` reads `trace.jsonl:17: hash_ids: …`."""

    def __init__(self, path: Path, line_number: int, problem: str) -> None:
        super().__init__(f"{path.name}:{line_number}: {problem}")
        self.path = path
        self.line_number = line_number
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """A request with its whole prompt."""

    timestamp_ms: float
    input_length: int
    output_length: int
    hash_ids: Sequence[int]
    """Names of the prompt's blocks, first to last; the last one is usually partial. Equal names
    mean equal content and equal prefix: those of a trace form a tree."""
    block_size: int
    """Tokens of a full block."""
    session: Hashable | None = None
    """The conversation; None: not known."""

    @property
    def num_full_blocks(self) -> int:
        """Leading blocks that an engine can find again if it caches only full blocks."""
        return self.input_length // self.block_size


class Names:
    """Numbers blocks by their ids and all before them.

    Some dialects hash a block with its prefix, others its content alone, which an engine finds
    again only behind the same prefix: a number for each path is right for both.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, Hashable], int] = {}

    def path(self, ids: Sequence[Hashable], root: Hashable = None) -> list[int]:
        """root: the scope of the ids; equal ids in different scopes are different blocks."""
        known, before, found = self._known, root, []
        for block in ids:
            before = known.setdefault((before, block), len(known))
            found.append(before)
        return found


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines with their numbers. Raises TraceError, or OSError if it cannot be read."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with _opened(path) as file:
        number = 0
        try:
            for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
                if len(line) > MAX_LINE_BYTES:
                    problem = f"a line of more than {MAX_LINE_BYTES >> 20} MiB"
                    raise TraceError(path, number, problem)
                if number == 1 and line.strip() == b"{":
                    line += file.read(_MAX_DOCUMENT_BYTES)
                if line.strip():
                    yield number, line
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            problem = f"its compression is broken: {error}"
            raise TraceError(path, number + 1, problem) from None


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_compressed = file.read(len(GZIP)) == GZIP
    return cast(IO[bytes], gzip.open(path)) if is_compressed else path.open("rb")


def decoded(path: Path, kind: type[_T]) -> Iterator[tuple[int, _T]]:
    """The lines as rows of this kind, with their numbers. Raises TraceError or OSError."""
    decoder = msgspec.json.Decoder(kind)
    for number, line in lines_of(path):
        try:
            yield number, decoder.decode(line)
        except JSON_ERRORS as error:
            raise TraceError(path, number, _described(error)) from error


def padded(
    place: tuple[Path, int], ids: Sequence[Hashable], length: int, block_size: int, owner: Hashable
) -> list[Hashable]:
    """The ids of a prompt, with names of its owner's own for blocks that have none. place: file and
    line. Raises TraceError if there are more ids than blocks."""
    blocks = -(-length // block_size)
    if len(ids) > blocks:
        problem = f"hash_ids: {len(ids)} ids for {length} tokens in blocks of {block_size}"
        raise TraceError(*place, f"{problem}: see --block-size")
    return [*ids, *((owner, number) for number in range(len(ids), blocks))]


def _described(error: Exception) -> str:
    """`Expected …, got … - at `$.field`` → `field: expected …, got …`."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if match := _AT_FIELD.fullmatch(str(error)):
        problem = match["problem"]
        return f"{match['field']}: {problem[0].lower()}{problem[1:]}"
    return str(error)
