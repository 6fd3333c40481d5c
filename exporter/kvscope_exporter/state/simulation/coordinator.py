"""One pool of another size, run through the admissions, chunks and ends of the real one.

The order of calls is that of vLLM's `KVCacheManager.allocate_slots`: give back what is no longer
seen, reference what was found, take blocks for all groups, name what is full.
"""

from collections.abc import Sequence

from kvscope_exporter.state.simulation.groups import Layers
from kvscope_exporter.state.simulation.pool import Pool
from kvscope_exporter.state.simulation.runs import Digest, Run
from kvscope_exporter.state.simulation.table import Table


class Held:
    """Blocks of a sequence in this pool, and its progress there."""

    __slots__ = ("digests", "ends", "places", "tables", "target")

    def __init__(
        self, digests: list[Digest], target: int, places: tuple[int, ...], found: int
    ) -> None:
        self.digests = digests
        """Names of its full blocks as far as they are known; one growing list for all sizes."""
        self.target = target
        """Tokens that it owes before it can go on by one at a time."""
        self.places = places
        """Tokens after which a later request may resume."""
        self.ends = [found]
        """Tokens computed: what was found, then after each chunk."""
        self.tables: list[Table] = []
        """By group."""


class Coordinator:
    def __init__(self, capacity: int, layers: Sequence[Layers], block_size: int) -> None:
        self._layers = layers
        self._groups = sum(len(kind.members) for kind in layers)
        self._block_size = block_size
        # One look suffices if there is but one kind beside full attention.
        self._is_simple = len(layers) <= 2 and layers[0].kind == "full_attention"
        self._kind_of = [next(k for k in layers if g in k.members) for g in range(self._groups)]
        self._skipping = [g for g, k in enumerate(self._kind_of) if k.kind != "full_attention"]
        self.pool = Pool(capacity, self._groups)
        self._held: dict[int, Held] = {}

    def look_up(self, digests: Sequence[Digest], limit: int) -> tuple[int, int]:
        """Blocks of the first `limit` that all groups accept; and the most that one accepted, if
        those were more."""
        hit, longest = limit, 0
        full: int | None = None
        while True:
            now = hit
            for kind in self._layers:
                if kind.kind == "full_attention" and full is not None:
                    now = min(now, full)
                    continue
                now = kind.accept(self.pool, digests, now)
                if kind.kind == "full_attention":
                    full = now
                longest = max(longest, now)
            if now >= hit:
                break
            hit = now
            if self._is_simple:
                break
        return hit, longest if longest > hit else 0

    def admit(
        self, sequence: int, digests: list[Digest], target: int, prompt: int, limit: int
    ) -> int:
        """Begin a sequence; returns the blocks that it found.

        digests: of its full blocks, the first `limit` of which may hit. target: tokens it owes.
        """
        self.end(sequence)
        size = self._block_size
        found, junction = self.look_up(digests, min(limit, len(digests)))
        places = (prompt - 1, junction * size) if junction else (prompt - 1,)
        held = Held(digests, target, places, found * size)
        for group, kind in enumerate(self._kind_of):
            first = min(found, kind.seen_from(found * size))
            shared = self.pool.share(group, digests, first, found)
            held.tables.append(Table(kind, group, found, shared))
        self._held[sequence] = held
        return found

    def skip(self, sequence: int, tokens: int | None, lag: int) -> None:
        """Give back what is not seen any more.

        tokens: computed for certain; None: derived from the chunks, of which the last `lag` are
        still under way.
        """
        held = self._held.get(sequence)
        if held is None:
            return
        if tokens is None:
            tokens = held.ends[max(0, len(held.ends) - 1 - lag)]
        for group in self._skipping:
            held.tables[group].skip(self.pool, tokens)

    def compute(self, sequence: int, room: int, lag: int) -> int:
        """One chunk of at most `room` tokens; returns how many were computed."""
        held = self._held.get(sequence)
        if held is None:
            return 0
        start = held.ends[-1]
        tokens = min(room, held.target - start)
        if tokens > 0:
            tokens = self._aligned(held, start, tokens, room)
        if tokens <= 0:
            return 0
        self.skip(sequence, None, lag)
        end = start + tokens
        held.ends.append(end)
        self._grow(held, -(-end // self._block_size))
        self._name(held, end // self._block_size)
        return tokens

    def owes(self, sequence: int) -> bool:
        """Whether its prompt, or what it lost, is not computed yet."""
        held = self._held.get(sequence)
        return held is not None and held.ends[-1] < held.target

    def grow(self, sequence: int, blocks: int) -> None:
        """A sequence that decodes needs this number of blocks in each group."""
        held = self._held.get(sequence)
        if held is not None:
            self._grow(held, blocks)

    def name(self, sequence: int, blocks: int) -> None:
        """This number of leading blocks of a sequence is full."""
        held = self._held.get(sequence)
        if held is not None:
            self._name(held, blocks)

    def end(self, sequence: int) -> None:
        """Give back all of it, group by group, each from its tail."""
        held = self._held.pop(sequence, None)
        if held is not None:
            for table in held.tables:
                self.pool.release(table.runs)

    def check(self, others: Sequence[Run]) -> None:
        """Assert every invariant; O(blocks). others: blocks that no sequence here holds."""
        tables = [table.runs for held in self._held.values() for table in held.tables]
        self.pool.check([*tables, others])

    def _grow(self, held: Held, blocks: int) -> None:
        wanted = sum([table.grow(blocks) for table in held.tables])
        if wanted:
            self.pool.take(wanted)

    def _name(self, held: Held, blocks: int) -> None:
        for table in held.tables:
            table.name(self.pool, held.digests, blocks, held.places)

    def _aligned(self, held: Held, start: int, tokens: int, room: int) -> int:
        """As many of the tokens as end where states are kept (`_mamba_block_aligned_split`)."""
        if not any(kind.at_chunk_ends for kind in self._layers):
            return tokens
        size, end = self._block_size, start + tokens
        prefill_end = max(held.places[0] + 1, held.target - 1)  # of a resumed one: what it had
        if start >= prefill_end:
            return tokens
        if end < prefill_end:
            aligned = end // size * size
            if aligned > start or size <= room:
                end = aligned
        stops = [(held.target - 1) // size * size]
        if start % size:
            stops.append((start // size + 1) * size)
        for junction in held.places[1:]:
            if start < junction < end:
                stops.append(junction)
        return min((stop for stop in stops if start < stop < end), default=end) - start
