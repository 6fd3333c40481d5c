"""The view of one engine: its frames and snapshots, read from its folds while these are held."""

from collections.abc import Iterable
from functools import partial
from itertools import islice

from kvscope_events.events import Batch
from kvscope_exporter.live.cells import MOST_PLACE, columns, named_columns
from kvscope_exporter.live.documents import (
    BlockDocument,
    Frame,
    Head,
    Pool,
    SequenceDocument,
    base64,
    encode,
    row_of,
    rows_of,
    snapshot_bytes,
)
from kvscope_exporter.live.following import LiveFold
from kvscope_exporter.live.state import (
    MapKind,
    block_of,
    figures_of,
    kind_of,
    names_of,
    pool_of,
    references_of,
)
from kvscope_exporter.state import (
    Cache,
    Fold,
    HelloTracker,
    Ledger,
    Preemption,
    Requests,
    Steps,
    Tiers,
)
from kvscope_exporter.state.churn import Churn
from kvscope_exporter.targets.target import Target

MAX_ROWS = 1024
"""Sequences in one frame; the others are in the next."""
_READ: tuple[type[Fold], ...] = (Cache, HelloTracker, Ledger, Preemption, Requests, Steps, Churn)
_READ_OF_CONTENT: tuple[type[Fold], ...] = (HelloTracker, Tiers)


class UnknownHereError(Exception):
    """Nothing can be shown; `str()` says why."""


class View:
    """For one thread at a time."""

    def __init__(self, target: Target, frame: int = 0) -> None:
        """Begin to follow the engine, unless a replay has followed it from its beginning.

        frame: number of the last one that those who look have got.
        """
        self.target = target
        self.frame_number = frame
        self._num_steps = 0
        self._epoch = 0
        self._base = 0
        self._state: tuple[bool, str, int] | None = None
        listeners = target.further
        followed = [each for each in listeners if isinstance(each, LiveFold) and each.is_shared]
        self._is_own = not followed
        self.following = followed[0] if followed else LiveFold()
        if self._is_own:
            with target.pipeline.settled():
                following = self.following
                following.since_ns = self._batch.time_ns
                ledger = None if target.is_content else target.folds[Ledger]
                if target.hello is not None:
                    following.join_names(target.hello, ledger.num_blocks if ledger else 0)
                if ledger is not None and ledger.known and not ledger.is_counted:
                    following.join(ledger.num_blocks, has_groups=len(ledger.groups) > 1)
                target.attach(following)

    def close(self) -> None:
        """Follow it no longer."""
        if self._is_own:
            with self.target.pipeline.settled():
                self.target.detach(self.following)

    def frame(self) -> bytes | None:
        """All changes since the last one; None: nothing has changed. Raises UnknownHereError."""
        with self.target.pipeline.settled():
            frame = self._make()
        return None if frame is None else encode(frame)

    def snapshot(self, *, blocks: bool = True) -> tuple[bytes | None, bytes]:
        """The frame up to it, which other readers need, and everything there is, or all but the
        blocks. Raises UnknownHereError."""
        with self.target.pipeline.settled():
            frame = self._make()
            following, folds = self.following, self.target.folds
            hello = folds[HelloTracker].hello
            assert hello is not None
            kind, batch = self._kind, self._batch
            groups = [] if self.target.is_content else folds[Ledger].groups
            head = Head(
                frame=self.frame_number,
                epoch=following.epoch,
                up=self.target.source.up,
                now_ms=batch.time_ns // 1_000_000,
                wall_ms=batch.wall_ns // 1_000_000,
                since_ms=following.since_ns // 1_000_000,
                model_name=hello.model_name,
                engine=hello.engine,
                server=hello.server,
                server_version=hello.server_version,
                eviction_policy=hello.eviction_policy,
                groups=[group.kind for group in groups] if len(groups) > 1 else [],
                pool=self._pool(kind),
                figures=figures_of(self.target),
                sequences=rows_of(following),
                steps=list(following.steps),
                columns={},
            )
            made = self._columns(kind, None) if blocks else {}
        return None if frame is None else encode(frame), snapshot_bytes(head, made)

    def sequence(self, number: int) -> SequenceDocument | None:
        """One sequence with its tables; None: not known here."""
        with self.target.pipeline.settled():
            sequence = self.following.sequences.known.get(number)
            if sequence is None:
                return None
            tables = sequence.tables
            if self.following.named.is_followed:
                tables = {0: self.following.named.table_of(number)}
            return SequenceDocument(
                sequence=row_of(sequence),
                is_whole=sequence.is_whole,
                tables={group: table.tolist() for group, table in tables.items()},
            )

    def block(self, number: int) -> BlockDocument | None:
        """The life of a block, or of the content of a cell; None: there is no such block."""
        with self.target.pipeline.settled():
            return block_of(self.target, self.following, number)

    def _make(self) -> Frame | None:
        following, pipeline, folds = self.following, self.target.pipeline, self.target.folds
        is_content, named = self.target.is_content, following.named
        read = _READ_OF_CONTENT if is_content else _READ
        if pipeline.failed(following) or any(pipeline.failed(folds[kind]) for kind in read):
            raise UnknownHereError("a fold failed and was given up: the log has the reason")
        stopped = folds[HelloTracker].stopped
        if stopped is not None:
            raise UnknownHereError(f"the engine's observer is off: {stopped}")
        last_place = 0 if is_content else folds[Ledger].blocks.last_place
        if last_place - self._base > MOST_PLACE:
            following.renew()
        kind = self._kind
        if kind != "names":
            named.known = False
        elif not named.known:
            named.begin(names_of(self.target))
            following.renew()
        sequences = following.sequences
        new_steps = following.num_steps - self._num_steps
        state = (self.target.source.up, kind, following.epoch)
        is_new = following.epoch != self._epoch
        changed, lost = following.changed, following.evicted
        if named.is_followed:
            changed, lost = named.changed, named.gone
        if state == self._state and not (
            new_steps or changed or sequences.changed or sequences.gone
        ):
            return None
        self.frame_number += 1
        self._epoch, self._state = following.epoch, state
        self._num_steps = following.num_steps
        if is_new:
            self._base = max(0, last_place - MOST_PLACE // 2)
        count = len(named.names if named.is_followed else following.owners)
        ids = sorted(block for block in changed if 0 <= block < count)
        evicted = sorted(block for block in lost if 0 <= block < count)
        rows = self._rows(sequences.changed)
        grown = sequences.grown - sequences.changed
        frame = Frame(
            frame=self.frame_number,
            epoch=self._epoch,
            up=self.target.source.up,
            now_ms=self._batch.time_ns // 1_000_000,
            wall_ms=self._batch.wall_ns // 1_000_000,
            pool=self._pool(kind),
            figures=figures_of(self.target),
            columns={name: base64(column) for name, column in self._columns(kind, ids).items()}
            if ids
            else {},
            evicted=base64(b"".join(block.to_bytes(4, "little") for block in evicted)),
            sequences=[row_of(sequences.known[number]) for number in rows],
            grown=[
                (number, known.output_tokens, known.num_blocks)
                for number in grown
                if (known := sequences.known.get(number)) is not None
            ],
            gone=sequences.gone[:],
            steps=list(following.steps)[-new_steps:] if new_steps else [],
        )
        changed.clear()
        lost.clear()
        sequences.changed.difference_update(rows)
        sequences.grown.clear()
        sequences.gone.clear()
        return frame

    def _rows(self, numbers: Iterable[int]) -> list[int]:
        known = self.following.sequences.known
        return list(islice((number for number in numbers if number in known), MAX_ROWS))

    @property
    def _kind(self) -> MapKind:
        kind = kind_of(self.target)
        if kind == "blocks" and len(self.following.owners) != self.target.folds[Ledger].num_blocks:
            return "unknown"  # until its next snapshot is followed
        return kind

    @property
    def _batch(self) -> Batch:
        """The last one."""
        return self.target.folds[HelloTracker].batch

    def _columns(self, kind: MapKind, ids: list[int] | None) -> dict[str, bytes]:
        target, following = self.target, self.following
        if kind == "names":
            return named_columns(following.named, partial(references_of, target), ids)
        if kind != "blocks":
            return {}
        ledger, cache = target.folds[Ledger], target.folds[Cache]
        return columns(
            following,
            ledger.blocks,
            cache.blocks if cache.known else None,
            ids,
            reserved=ledger.reserved,
            base=self._base,
        )

    def _pool(self, kind: MapKind) -> Pool:
        named = self.following.named
        names = len(named) if kind == "names" else None
        return pool_of(self.target, kind, names, named.block_size)
