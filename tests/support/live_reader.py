"""A reader of the live view (docs/reference/live-stream.md): a snapshot, then frames."""

import base64
import json
import struct
from array import array
from typing import Any

from kvscope_exporter.live.view import View
from kvscope_exporter.targets.target import Target

MAGIC = b"KVSLIVE1"
FREE, RESERVED, CACHED = range(3)


class Stale(Exception):
    """A new snapshot is needed."""


class LiveReader:
    """`columns` and `sequences` are those of the server after the last frame that was applied."""

    def __init__(self, snapshot: bytes) -> None:
        assert snapshot.startswith(MAGIC)
        (length,) = struct.unpack_from("<I", snapshot, len(MAGIC))
        begin = len(MAGIC) + 4
        self.head: dict[str, Any] = json.loads(snapshot[begin : begin + length])
        body = snapshot[begin + length :]
        assert (begin + length) % 4 == 0, "columns are aligned"
        self.columns: dict[str, array[int]] = {
            name: array("B" if kind == "u8" else "I", body[offset : offset + size])
            for name, (offset, size, kind) in self.head["columns"].items()
        }
        self.pool: dict[str, Any] = self.head["pool"]
        self.sequences: dict[int, dict[str, Any]] = {s["id"]: s for s in self.head["sequences"]}
        self.steps: list[list[int]] = self.head["steps"]
        self.frame: int = self.head["frame"]
        self.now_ms: int = self.head["now_ms"]
        self.num_applied = 0

    def apply(self, data: bytes) -> None:
        """Raises Stale."""
        frame = json.loads(data)
        if frame["frame"] <= self.frame:
            return
        if frame["epoch"] != self.head["epoch"]:
            raise Stale
        assert frame["frame"] == self.frame + 1, "frames are missing"
        self.frame, self.now_ms = frame["frame"], frame["now_ms"]
        self.pool = frame["pool"]
        self.num_applied += 1
        changed = {
            name: array("B" if name in ("cell", "group") else "I", base64.b64decode(column))
            for name, column in frame.get("columns", {}).items()
        }
        for place, block in enumerate(changed.pop("id", ())):
            for name, column in changed.items():
                self.columns[name][block] = column[place]
        for row in frame.get("sequences", []):
            self.sequences[row["id"]] = row
        for number, tokens, blocks in frame.get("grown", []):
            self.sequences[number] |= {"output_tokens": tokens, "blocks": blocks}
        for number in frame.get("gone", []):
            self.sequences.pop(number, None)
        self.steps = [*self.steps, *frame.get("steps", [])][-200:]

    @property
    def references(self) -> list[int]:
        """By block."""
        return [max(0, cell - CACHED) for cell in self.columns["cell"]]

    @property
    def lru(self) -> list[int]:
        """Cached blocks, the oldest first."""
        places = self.columns["place"]
        return sorted((b for b, p in enumerate(places) if p), key=places.__getitem__)


class FollowedView:
    """Reads a view as the page does: a snapshot, then frames."""

    def __init__(self, target: Target) -> None:
        self.view = View(target)
        self.reader = LiveReader(self.view.snapshot()[1])
        self.num_snapshots = 1

    def read(self) -> LiveReader:
        """Up to now."""
        frame = self.view.frame()
        try:
            if frame is not None:
                self.reader.apply(frame)
        except Stale:
            self.reader = LiveReader(self.view.snapshot()[1])
            self.num_snapshots += 1
        return self.reader

    def names(self) -> dict[bytes, int]:
        """By name, in a map of names: the number in its cell."""
        named = {}
        for number, cell in enumerate(self.read().columns["cell"]):
            if cell != FREE:
                document = self.view.block(number)
                assert document is not None
                assert document.name is not None
                named[bytes.fromhex(document.name)] = cell
        cells = sum(cell != FREE for cell in self.reader.columns["cell"])
        assert len(named) == cells == self.reader.pool["names"], "no name has two cells"
        return named
