"""Sequences as they come and go: their states over time, and their block tables.

A table is what events named since the sequence was admitted; of one that ran before it was
followed, only what it got since is known.
"""

from array import array
from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Literal

from kvscope_events.events import (
    BlockCopied,
    BlockHash,
    BlocksReleased,
    PrefixLookup,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.state.tenants import name_of

State = Literal["queued", "prefill", "decode", "preempted", "swapped", "finished", "aborted"]
KEPT_ENDED = 200
KEPT_CHANGES = 64
"""Changes of state of one sequence; one that is preempted more often loses its earliest."""
NO_BLOCK = -1
"""Place in a table whose block the sequence gave back while it went on."""
ENDS = frozenset({"finished", "aborted", "preempted", "swapped_out"})
"""Causes of a release of everything that a sequence holds."""


@dataclass(slots=True)
class Sequence:
    """One sequence; None: it began before it was followed."""

    number: int
    request: int | None
    prompt_tokens: int | None
    max_tokens: int | None
    tenant: str
    state: State
    changes: deque[tuple[State, int]]
    """Each state with the time at which it began, on the producer's clock in ms."""
    output_tokens: int = 0
    """Since it was followed; once it has ended, all of them."""
    hit_blocks: int = 0
    """Found by its last lookup."""
    preemptions: int = 0
    is_whole: bool = False
    """Whether it was seen from its beginning."""
    root: int = 0
    tables: dict[int, "array[int]"] = field(default_factory=dict)
    """Blocks by group, in the order of the tokens."""
    has_table: bool = True
    """Whether the engine says which blocks it has."""

    @property
    def num_blocks(self) -> int | None:
        """None: not known."""
        return None if not self.has_table else sum(len(table) for table in self.tables.values())


class Sequences:
    """By number; those that ended are kept for a while."""

    def __init__(self) -> None:
        self.known: dict[int, Sequence] = {}
        self.have_tables = True
        """Whether the engine numbers its blocks."""
        self.changed: set[int] = set()
        """Those whose state, prompt or preemptions changed since the last frame."""
        self.grown: set[int] = set()
        """Those that only got tokens or blocks since then."""
        self.gone: list[int] = []
        """Those forgotten since then."""
        self._ended: deque[int] = deque()
        self._tenants: dict[int, str] = {}  # of requests
        self._of_request: dict[int, list[int]] = {}

    @property
    def num_pending(self) -> int:
        return len(self.known) - len(self._ended) + len(self._tenants) + len(self._of_request)

    def forget(self) -> None:
        """Nothing is known of them any more."""
        self.gone += self.known
        for part in (self.known, self.changed, self.grown, self._ended):
            part.clear()
        self._tenants.clear()
        self._of_request.clear()

    def root_of(self, number: int | None) -> int:
        """The first block of its chain, as four bytes of its name; 0: not known."""
        sequence = None if number is None else self.known.get(number)
        return 0 if sequence is None else sequence.root

    def begin_chain(self, number: int | None, name: BlockHash) -> None:
        """The first block of a sequence has this name."""
        sequence = None if number is None else self.known.get(number)
        if sequence is not None:
            sequence.root = int.from_bytes(name[:4], "big")

    def arrive(self, event: RequestArrived) -> None:
        if event.tenant:
            self._tenants[event.request] = name_of(event)

    def add(self, event: SequenceAdded, time_ns: int) -> None:
        number, request = event.sequence, event.request
        sequence = Sequence(
            number=number,
            request=request,
            prompt_tokens=event.prompt_tokens,
            max_tokens=event.max_tokens,
            tenant=self._tenants.get(request, ""),
            state="queued",
            changes=deque([("queued", time_ns // 1_000_000)], KEPT_CHANGES),
            is_whole=True,
            has_table=self.have_tables,
        )
        self.known[number] = sequence
        self._of_request.setdefault(request, []).append(number)
        self.changed.add(number)

    def schedule(self, request: int, time_ns: int) -> None:
        """The first sequence of a request runs."""
        for number in self._of_request.get(request, ())[:1]:
            self._admit(self.known[number], time_ns)

    def look_up(self, event: PrefixLookup, time_ns: int) -> None:
        sequence = self._known(event.sequence, "prefill", time_ns)
        sequence.hit_blocks = event.hit_blocks
        if event.hashes:
            sequence.root = int.from_bytes(event.hashes[0][:4], "big")
        self.changed.add(event.sequence)

    def take(
        self, number: int | None, blocks: Items[int], group: int | None, cause: str, time_ns: int
    ) -> None:
        """It got references to these blocks."""
        if number is None or cause in ("cow", "pin"):
            return
        sequence = self._known(number, "prefill" if cause != "decode" else "decode", time_ns)
        if cause == "prefix_hit":
            self.changed.add(number)
        self._admit(sequence, time_ns)
        table = sequence.tables.get(group or 0)
        if table is None:
            table = sequence.tables[group or 0] = array("i")
        table.extend(blocks)
        self.grown.add(number)

    def give_back(self, event: BlocksReleased) -> None:
        sequence = None if event.sequence is None else self.known.get(event.sequence)
        if sequence is None or event.cause in ("cow", "unpinned"):
            return
        self.grown.add(sequence.number)
        table = sequence.tables.get(event.group or 0)
        if event.cause in ENDS:
            sequence.tables.pop(event.group or 0, None)
        elif table is not None:
            for block in (*event.cached, *event.free, *event.shared):
                if block in table:
                    table[table.index(block)] = NO_BLOCK
            while table and event.cause == "failed_load" and table[-1] == NO_BLOCK:
                table.pop()

    def copy(self, event: BlockCopied) -> None:
        """It writes to its own copy of a block from now on."""
        sequence = self.known.get(event.sequence)
        for table in () if sequence is None else sequence.tables.values():
            if event.source in table:
                table[table.index(event.source)] = event.target

    def preempt(self, event: RequestPreempted, time_ns: int) -> None:
        state: State = "swapped" if event.mode == "swap" else "preempted"
        sequence = self._known(event.sequence, "decode", time_ns)
        sequence.preemptions += 1
        self._become(sequence, state, time_ns)

    def resume(self, event: RequestResumed, time_ns: int) -> None:
        sequence = self._known(event.sequence, "prefill", time_ns)
        self._become(sequence, "prefill", time_ns)

    def step(self, event: StepCompleted, time_ns: int) -> None:
        """Sequences produced tokens."""
        counts = event.emitted_tokens or [1] * len(event.emitted)
        for number, tokens in zip(event.emitted, counts, strict=False):
            sequence = self.known.get(number)
            if sequence is None:
                sequence = self._known(number, "decode", time_ns)
            if sequence.state in ("finished", "aborted"):
                continue  # the event of its end has all its tokens
            sequence.output_tokens += tokens
            if sequence.state == "prefill" or sequence.state == "queued":
                self._become(sequence, "decode", time_ns)
        self.grown.update(event.emitted)

    def end(self, event: SequenceFinished, time_ns: int) -> None:
        sequence = self._known(event.sequence, "decode", time_ns)
        sequence.prompt_tokens = event.prompt_tokens
        sequence.max_tokens = event.max_tokens
        sequence.output_tokens = event.output_tokens
        sequence.preemptions = event.preemptions
        is_cut = event.reason in ("abort", "error")
        self._become(sequence, "aborted" if is_cut else "finished", time_ns)
        self._ended.append(event.sequence)
        while len(self._ended) > KEPT_ENDED:
            number = self._ended.popleft()
            if self.known.pop(number, None) is not None:
                self.gone.append(number)
                self.changed.discard(number)
                self.grown.discard(number)

    def finish(self, event: RequestFinished) -> None:
        self._tenants.pop(event.request, None)
        self._of_request.pop(event.request, None)

    def owners_of(self, block: int) -> list[int]:
        """The sequences in whose tables it is; O(blocks of all tables)."""
        return [
            sequence.number
            for sequence in self.known.values()
            if any(block in table for table in sequence.tables.values())
        ]

    def _known(self, number: int, state: State, time_ns: int) -> Sequence:
        """A sequence that is heard of; in this state if it began before it was followed."""
        sequence = self.known.get(number)
        if sequence is None:
            sequence = self.known[number] = Sequence(
                number=number,
                request=None,
                prompt_tokens=None,
                max_tokens=None,
                tenant="",
                state=state,
                changes=deque([(state, time_ns // 1_000_000)], KEPT_CHANGES),
                has_table=self.have_tables,
            )
            self.changed.add(number)
        return sequence

    def _admit(self, sequence: Sequence, time_ns: int) -> None:
        if sequence.state == "queued":
            self._become(sequence, "prefill", time_ns)

    def _become(self, sequence: Sequence, state: State, time_ns: int) -> None:
        if sequence.state != state:
            sequence.state = state
            sequence.changes.append((state, time_ns // 1_000_000))
        self.changed.add(sequence.number)
