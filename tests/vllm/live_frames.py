"""The live view of a running vLLM over HTTP: the map after every frame, for the witness's word."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from tests.support.live_reader import CACHED, FREE, LiveReader, Stale

SHOWN = 5
"""Differences that a failure prints."""


class Seen(NamedTuple):
    """The map after one frame."""

    steps: int
    """Steps that computed something by then, as the witness counts them."""
    counts: tuple[int, int, int]
    """Active, cached and free cells."""
    references: dict[str, int]
    lru: list[int]


class Frames:
    """Follows an engine that idles when it begins, whose witness has seen that many steps."""

    def __init__(self, url: str, steps: int) -> None:
        self.seen: list[Seen] = []
        self.steps = steps
        self._url = url
        self._ending = threading.Event()

    @contextmanager
    def following(self) -> Iterator[None]:
        """Read frames inside the block, and the last ones at its end."""
        thread = threading.Thread(target=self._read, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()

    def _read(self) -> None:
        with httpx.stream("GET", f"{self._url}/live/events", timeout=30) as stream:
            reader = LiveReader(httpx.get(f"{self._url}/live/snapshot", timeout=30).content)
            name = ""
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    assert name == "frame", line
                    reader = self._apply(reader, line.removeprefix("data: ").encode())
                elif line.startswith(":") and self._ending.is_set():
                    return  # nothing has changed for five seconds

    def _apply(self, reader: LiveReader, data: bytes) -> LiveReader:
        before = reader.steps[-1:]
        try:
            reader.apply(data)
        except Stale:
            reader = LiveReader(httpx.get(f"{self._url}/live/snapshot", timeout=30).content)
        place = reader.steps.index(before[0]) + 1 if before else 0
        self.steps += sum(step[2] + step[3] > 0 for step in reader.steps[place:])
        cells = Counter(min(cell, CACHED + 1) for cell in reader.columns["cell"])
        self.seen.append(
            Seen(
                self.steps,
                (cells[CACHED + 1], cells[CACHED], cells[FREE]),
                {str(b): count for b, count in enumerate(reader.references) if count},
                reader.lru,
            )
        )
        return reader


def compared(seen: list[Seen], lines: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """How many maps were compared block by block; and those that no state of vLLM's explains.

    After a step come calls outside of steps, such as a reset; a frame may be from before or after.
    """
    by_step: dict[int, list[dict[str, Any]]] = {}
    number = 0
    for line in lines[1:]:  # the first says that the pool was created
        number += line["tokens"] > 0
        by_step.setdefault(number, []).append(line)
    whole, differing = 0, []
    for one in seen:
        after = by_step.get(one.steps, [])
        alike = [ln for ln in after if one.counts == (ln["active"], ln["cached"], ln["free"])]
        blocks = [ln for ln in alike if "lru" in ln]
        whole += bool(blocks)
        if not alike or (
            len(blocks) == len(alike)
            and all((one.references, one.lru) != (ln["references"], ln["lru"]) for ln in blocks)
        ):
            told = [(ln["call"], ln["active"], ln["cached"], ln["free"]) for ln in after]
            differing.append(f"after step {one.steps}: {one.counts}, in vLLM {told}")
    return whole, differing[:SHOWN]
