"""The dialects of traces, recognised by the first rows of a file, with the tokens of a block."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from kvscope.traces.request import lines_of
from kvscope_exporter.fetch.error import JSON_ERRORS


class Dialect(StrEnum):
    """Formats of traces, by what their makers call them."""

    MOONCAKE = "mooncake"
    BAILIAN = "bailian"
    AIPERF = "aiperf"
    WEKA = "weka"


_ROWS = 1000
"""Rows that are looked at."""
_USUAL = (512, 16, 64, 32, 128, 256, 1024, 2048, 8, 4, 1)
"""Block sizes, those first that are taken where several fit."""
_BLOCK_FIELDS = ("block_size", "hash_id_block_size")
_DEFAULTS: Mapping[Dialect, int] = {
    Dialect.MOONCAKE: 512,
    Dialect.BAILIAN: 16,
    Dialect.AIPERF: 512,
    Dialect.WEKA: 64,
}


def first_rows(path: Path) -> list[Mapping[str, Any]]:
    """The rows that are JSON objects; those that are not are named when they are read.

    Raises TraceError for a line without an end, or OSError if it cannot be read.
    """
    rows: list[Mapping[str, Any]] = []
    for _, line in islice(lines_of(path), _ROWS):
        try:
            row = msgspec.json.decode(line)
        except JSON_ERRORS:
            continue
        if isinstance(row, dict):
            rows.append(row)
            if "requests" in row:
                break  # sessions are long, and all alike
    return rows


def dialect_of(rows: Sequence[Mapping[str, Any]]) -> Dialect:
    """The dialect that rows of a file are written in; Mooncake's if nothing says otherwise."""
    if any("requests" in row for row in rows):
        return Dialect.WEKA
    if any("chat_id" in row and ("turn" in row or "type" in row) for row in rows):
        return Dialect.BAILIAN
    if any("session_id" in row for row in rows) and (
        any("delay" in row or "timestamp" not in row for row in rows) or _are_increments(rows)
    ):
        return Dialect.AIPERF
    return Dialect.MOONCAKE


def block_size_of(rows: Sequence[Mapping[str, Any]], dialect: Dialect) -> int:
    """The tokens behind one id: as a row states it, else the size that fits most rows."""
    for row in rows:
        for field in _BLOCK_FIELDS:
            stated = row.get(field)
            if isinstance(stated, int) and stated > 0:
                return stated
    pairs = [
        (row.get("input_length"), len(ids))
        for row in rows
        if isinstance(ids := row.get("hash_ids"), list) and ids
    ]
    counts = [(length, ids) for length, ids in pairs if isinstance(length, int) and length > 0]
    if dialect is Dialect.WEKA or not counts:
        return _DEFAULTS[dialect]
    usual = sorted(_USUAL, key=lambda size: size != _DEFAULTS[dialect])
    fits = {size: sum(-(-length // size) == ids for length, ids in counts) for size in usual}
    best = max(fits, key=lambda size: fits[size])
    if fits[best] == len(counts):
        return best
    for is_rounded_up in (True, False):
        low, high = _range(counts, is_rounded_up=is_rounded_up)
        if low <= high:
            return next((size for size in usual if low <= size <= high), low)
    return best


def _range(counts: Sequence[tuple[int, int]], *, is_rounded_up: bool) -> tuple[int, int]:
    """The smallest and the largest size with these numbers of ids for these lengths."""
    longest = max(length for length, _ in counts)
    if is_rounded_up:
        low = [-(-length // ids) for length, ids in counts]
        high = [(length - 1) // (ids - 1) if ids > 1 else longest for length, ids in counts]
    else:
        low = [length // (ids + 1) + 1 for length, ids in counts]
        high = [length // ids for length, ids in counts]
    return max(low), min(high)


def _are_increments(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether later rows of a session have the ids of what is new alone."""
    last: dict[Any, Any] = {}
    for row in rows:
        session, ids = str(row.get("session_id")), row.get("hash_ids")
        if ids and last.get(session) and ids[0] != last[session][0]:
            return True
        last[session] = ids
    return False
