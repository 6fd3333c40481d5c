"""Blocks as columns of numbers, in native little-endian bytes: all of a pool, or the changed ones.

`cell` has the state: 0 free, 1 reserved, 2 cached, from 3 on active with that many references and
two more, 255 for 253 and above. `place` is the position in the LRU, 0 for blocks that are not
cached: the smallest is evicted first. `touched` is the time of the last use of a cached block on
the producer's clock in tenths of a second, 0 if unknown. `owner`, `prefix` and `group` are those of
`following.py`. Where blocks have no numbers, the same columns describe the cells of `named.py`.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from kvscope_events.events import BlockHash
from kvscope_exporter.live.following import LiveFold
from kvscope_exporter.live.named import NamedCells
from kvscope_exporter.state.cache.blocks import Blocks
from kvscope_exporter.state.ledger.numbered import NumberedBlocks

FREE, RESERVED, CACHED = range(3)
MOST_REFERENCES = 253
TENTH_NS = 100_000_000
MOST_PLACE = (1 << 32) - 1


def columns(
    following: LiveFold,
    blocks: NumberedBlocks,
    times: Blocks | None,
    ids: Sequence[int] | None = None,
    *,
    reserved: int,
    base: int,
) -> dict[str, bytes]:
    """times: None: not known. ids: None: all blocks. base: place that counts as 0 in the LRU."""
    pick = _picker(ids)
    places = pick(blocks.places)
    numbers = range(len(places)) if ids is None else ids
    made = {
        "place": _little(
            array("I", [min(max(p - base, 1), MOST_PLACE) if p else 0 for p in places])
        ),
        "touched": _little(array("I", _touched(pick, times, len(places)))),
        "owner": _little(array("I", pick(following.owners))),
        "prefix": _little(array("I", pick(following.prefixes))),
        "cell": _cells(numbers, pick(blocks.ref_counts), places, reserved),
    }
    if following.groups:
        made["group"] = bytes(pick(following.groups))
    if ids is not None:
        made["id"] = _little(array("I", ids))
    return made


def named_columns(
    named: NamedCells, references: Callable[[BlockHash], int], ids: Sequence[int] | None = None
) -> dict[str, bytes]:
    """references: of a name, by running sequences. ids: None: all cells."""
    pick = _picker(ids)
    names = pick(named.names)
    touched_ns = pick(named.touched_ns)
    made = {
        "place": bytes(4 * len(names)),  # the order of eviction is not known
        "touched": _little(array("I", [ns // TENTH_NS for ns in touched_ns])),
        "owner": _little(array("I", pick(named.owners))),
        "prefix": _little(array("I", pick(named.prefixes))),
        "cell": bytes(
            FREE if name is None else CACHED + min(references(name), MOST_REFERENCES)
            for name in names
        ),
    }
    if ids is not None:
        made["id"] = _little(array("I", ids))
    return made


def _cells(
    numbers: Iterable[int], ref_counts: Iterable[int], places: Iterable[int], reserved: int
) -> bytes:
    return bytes(
        [
            min(references, MOST_REFERENCES) + CACHED
            if references
            else CACHED
            if place
            else RESERVED
            if block < reserved
            else FREE
            for block, references, place in zip(numbers, ref_counts, places, strict=True)
        ]
    )


def _touched(pick: Callable[[Any], Any], times: Blocks | None, count: int) -> Sequence[int]:
    if times is None or not len(times.idle_ns):
        return [0] * count
    return [ns // TENTH_NS if ns > 0 else 0 for ns in pick(times.idle_ns)]


def _picker(ids: Sequence[int] | None) -> Callable[[Any], Any]:
    """Takes these items of a sequence, or all."""
    if ids is None:
        return lambda column: column
    if not ids:
        return lambda _: ()
    if len(ids) == 1:
        only = ids[0]
        return lambda column: (column[only],)
    return itemgetter(*ids)


def _little(column: "array[int]") -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()
