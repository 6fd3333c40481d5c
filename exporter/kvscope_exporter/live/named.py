"""Cells for cached content that has names and no block numbers: pages that an engine only counts,
and streams of KV events.

A name gets a cell when it becomes findable and keeps it until it is gone; its cell is then given to
the next name. Copies of one name share a cell. `Following` hands on what it hears.
"""

import heapq
import zlib
from array import array
from collections.abc import Iterable

from kvscope_events.events import BlockHash, Hello, NamesRemoved, NamesStored, PrefixLookup
from kvscope_exporter.state.tiers import MAX_DEVICE_NAMES

LEAST_CELLS = 64
MOST_CELLS = MAX_DEVICE_NAMES
_MOST_OWNER = (1 << 32) - 2


def has_names(hello: Hello) -> bool:
    """Whether this engine names its cached content, and numbers no blocks."""
    return "NamesStored" in hello.tells and "BlocksAllocated" not in hello.tells


def root_of(name: BlockHash) -> int:
    """A number for a name, by which prompts that begin alike have one colour. Names differ in any
    of their bytes, by server."""
    return zlib.crc32(name) or 1


class NamedCells:
    """Reads are meaningful only while `known`."""

    def __init__(self) -> None:
        self.known = False
        self.is_followed = False
        """Whether the engine names content and numbers no blocks."""
        self.names: list[BlockHash | None] = []
        """By cell; None: vacant."""
        self.owners = array("I")
        """By cell: the sequence that asked for it last, plus one; 0: not known."""
        self.prefixes = array("I")
        """By cell: see `root_of`, of the first name of its chain; 0: not known."""
        self.touched_ns = array("Q")
        """By cell: when it was stored, found or given back last; 0: not seen."""
        self.stored_ns = array("Q")
        """By cell: when its content became findable; 0: not seen."""
        self.block_size = 0
        """Tokens of a name, as the stream says; 0: it does not."""
        self.changed: set[int] = set()
        self.gone: set[int] = set()
        """Cells whose content was lost since the last frame."""
        self._cells: dict[BlockHash, int] = {}
        self._copies: dict[BlockHash, int] = {}  # beyond the first, never 0
        self._vacant: list[int] = []  # a heap: the map stays compact
        self._paths: dict[int, list[BlockHash]] = {}  # by running sequence
        self._asked: dict[BlockHash, tuple[int, int]] = {}  # owner and root of names to come
        self._unsettled: list[BlockHash] = []  # whose references change until the step's end

    def __len__(self) -> int:
        return len(self._cells)

    def introduce(self, hello: Hello) -> None:
        self.is_followed = has_names(hello)

    def clear(self, num_cells: int | None = None) -> None:
        """Nothing can be found. num_cells: of the pool; None: as many as there are."""
        size = len(self.names) if num_cells is None else num_cells
        self.names = [None] * size
        self.owners, self.prefixes = array("I", bytes(4 * size)), array("I", bytes(4 * size))
        self.touched_ns, self.stored_ns = array("Q", bytes(8 * size)), array("Q", bytes(8 * size))
        self._vacant = list(range(size))
        for part in (self._cells, self._copies, self._asked):
            part.clear()
        for each in (self._unsettled, self.changed, self.gone):
            each.clear()

    def lose(self) -> None:
        """Batches were lost, or there is another pool."""
        self.clear()
        self._paths.clear()
        self.known = False

    def begin(self, names: Iterable[tuple[BlockHash, int]]) -> None:
        """These can be found, each in as many blocks; what is known of them stays."""
        present = dict(names)
        for name in self._cells.keys() - present.keys():
            self._vacate(name)
        for name in present.keys() - self._cells.keys():
            self._place(name)
        self._copies = {name: count - 1 for name, count in present.items() if count > 1}
        self.known = True

    def store(self, event: NamesStored, time_ns: int) -> bool:
        """Returns whether the number of cells has changed."""
        size = len(self.names)
        if len(self._cells) + len(event.names) > MOST_CELLS:  # a stream that never removes any
            self.lose()
            self.clear(0)
            return True
        self.block_size = event.block_size or self.block_size
        above = None if event.parent is None else self._cells.get(event.parent)
        root = root_of(event.names[0]) if event.parent is None and event.names else 0
        root = root if above is None else self.prefixes[above]
        for name in event.names:
            if name in self._cells:
                self._copies[name] = self._copies.get(name, 0) + 1
                continue
            cell = self._place(name)
            self.owners[cell], asked_root = self._asked.pop(name, (0, 0))
            self.prefixes[cell] = asked_root or root
            self.touched_ns[cell] = time_ns
            self.stored_ns[cell] = time_ns
            if self._paths:  # a stream of KV events has neither sequences nor steps
                self._unsettled.append(name)
        return len(self.names) > size

    def remove(self, event: NamesRemoved) -> None:
        for name in event.names:
            copies = self._copies.pop(name, 0)
            if copies > 1:
                self._copies[name] = copies - 1
            elif not copies and name in self._cells:
                self._vacate(name)

    def look_up(self, event: PrefixLookup, time_ns: int) -> bool:
        """Returns whether the number of cells has changed."""
        if not (self.is_followed and event.named and event.hashes):
            return False
        size = len(self.names)
        path = self._paths[event.sequence] = event.hashes
        owner, root = min(event.sequence, _MOST_OWNER) + 1, root_of(path[0])
        for place, name in enumerate(path):
            is_found = place < event.hit_blocks
            cell = self._cells.get(name)
            if cell is None and not is_found:
                self._asked[name] = owner, root
                continue
            if cell is None:  # it was here before we watched
                cell = self._place(name)
            self.owners[cell], self.prefixes[cell] = owner, root
            if is_found:
                self.touched_ns[cell] = time_ns
            self.changed.add(cell)
        return len(self.names) > size

    def end(self, sequence: int | None) -> None:
        """A sequence gives back what it referred to."""
        path = [] if sequence is None else self._paths.pop(sequence, [])
        for name in path:
            self._asked.pop(name, None)
        self._unsettled += path

    def settle(self, time_ns: int) -> None:
        """A step has ended, with which references are given back."""
        for name in self._unsettled:
            cell = self._cells.get(name)
            if cell is not None:
                self.touched_ns[cell] = time_ns
                self.changed.add(cell)
        self._unsettled.clear()

    def table_of(self, sequence: int) -> "array[int]":
        """Cells of what it looked up, in the order of the tokens; -1: not findable now."""
        return array("i", [self._cells.get(name, -1) for name in self._paths.get(sequence, ())])

    def owners_of(self, name: BlockHash) -> list[int]:
        """Running sequences that looked it up."""
        return [sequence for sequence, path in self._paths.items() if name in path]

    def _place(self, name: BlockHash) -> int:
        if not self._vacant:
            size = len(self.names)
            more = max(size, LEAST_CELLS)
            self.names += [None] * more
            for column in (self.owners, self.prefixes, self.touched_ns, self.stored_ns):
                column.frombytes(bytes(column.itemsize * more))
            self._vacant = list(range(size, size + more))
        cell = heapq.heappop(self._vacant)
        self._cells[name] = cell
        self.names[cell] = name
        self.changed.add(cell)
        return cell

    def _vacate(self, name: BlockHash) -> None:
        cell = self._cells.pop(name)
        self.names[cell] = None
        self.owners[cell] = self.prefixes[cell] = 0
        self.touched_ns[cell] = self.stored_ns[cell] = 0
        heapq.heappush(self._vacant, cell)
        self.changed.add(cell)
        self.gone.add(cell)
