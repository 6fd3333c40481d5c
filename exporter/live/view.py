"""The view of one engine: its frames and snapshots, read from its folds while these are held."""

from collections.abc import Iterable
from itertools import islice

from exporter.fold import Cache, Fold, Introduction, Ledger, Preemption, Requests, Steps
from exporter.fold.churn import Churn
from exporter.live.cells import MOST_PLACE, columns
from exporter.live.documents import (
    BlockDocument,
    Figures,
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
from exporter.live.following import Following, blocks_of
from exporter.watched.target import Target
from kvscope_events.events import BlocksShared

MAX_ROWS = 1024
"""Sequences in one frame; the others are in the next."""
LIFE_EVENTS = 100
_READ: tuple[type[Fold], ...] = (Cache, Introduction, Ledger, Preemption, Requests, Steps, Churn)


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
        followed = [each for each in listeners if isinstance(each, Following) and each.is_shared]
        self._is_own = not followed
        self.following = followed[0] if followed else Following()
        if self._is_own:
            with target.pipeline.settled():
                ledger, following = target.folds[Ledger], self.following
                following.since_ns = ledger.batch.time_ns
                if ledger.known and not ledger.is_counted:
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
            hello = folds[Introduction].hello
            assert hello is not None
            pool = self._pool()
            head = Head(
                frame=self.frame_number,
                epoch=following.epoch,
                up=self.target.source.up,
                now_ms=folds[Ledger].batch.time_ns // 1_000_000,
                wall_ms=folds[Ledger].batch.wall_ns // 1_000_000,
                since_ms=following.since_ns // 1_000_000,
                model_name=hello.model_name,
                engine=hello.engine,
                server=hello.server,
                server_version=hello.server_version,
                eviction_policy=hello.eviction_policy,
                groups=[group.kind for group in folds[Ledger].groups]
                if len(folds[Ledger].groups) > 1
                else [],
                pool=pool,
                figures=self._figures(),
                sequences=rows_of(following),
                steps=list(following.steps),
                columns={},
            )
            made = self._columns(None) if blocks and pool.map == "blocks" else {}
        return None if frame is None else encode(frame), snapshot_bytes(head, made)

    def sequence(self, number: int) -> SequenceDocument | None:
        """One sequence with its tables; None: not known here."""
        with self.target.pipeline.settled():
            sequence = self.following.sequences.known.get(number)
            if sequence is None:
                return None
            return SequenceDocument(
                sequence=row_of(sequence),
                is_whole=sequence.is_whole,
                tables={group: table.tolist() for group, table in sequence.tables.items()},
            )

    def block(self, number: int) -> BlockDocument | None:
        """The life of a block; None: there is no such block."""
        with self.target.pipeline.settled():
            ledger, following = self.target.folds[Ledger], self.following
            if ledger.is_counted or not 0 <= number < len(ledger.blocks.ref_counts):
                return None
            name = ledger.blocks.hashes[number]
            times = self.target.folds[Cache].blocks.written_ns
            born_ns = times[number] if number < len(times) else -1
            named = [
                (time_ns, event)
                for time_ns, event in reversed(following.events)
                if number in blocks_of(event)
            ]
            return BlockDocument(
                id=number,
                name=None if name is None else name.hex(),
                references=ledger.blocks.ref_counts[number],
                owners=following.sequences.owners_of(number),
                born_ms=born_ns // 1_000_000 if born_ns > 0 else None,
                hits=sum(
                    isinstance(event, BlocksShared) and event.cause == "prefix_hit"
                    for _, event in named
                ),
                events=[
                    (
                        time_ns // 1_000_000,
                        type(event).__name__,
                        getattr(event, "sequence", None),
                        getattr(event, "cause", ""),
                    )
                    for time_ns, event in named[:LIFE_EVENTS]
                ],
            )

    def _make(self) -> Frame | None:
        following, pipeline, folds = self.following, self.target.pipeline, self.target.folds
        if pipeline.failed(following) or any(pipeline.failed(folds[kind]) for kind in _READ):
            raise UnknownHereError("a fold failed and was given up: the log has the reason")
        if folds[Introduction].stopped is not None:
            raise UnknownHereError("the engine's observer has switched itself off")
        if folds[Ledger].blocks.last_place - self._base > MOST_PLACE:
            following.renew()
        sequences, pool = following.sequences, self._pool()
        new_steps = following.num_steps - self._num_steps
        state = (self.target.source.up, pool.map, following.epoch)
        is_new = following.epoch != self._epoch
        if state == self._state and not (
            new_steps or following.changed or sequences.changed or sequences.gone
        ):
            return None
        self.frame_number += 1
        self._epoch, self._state = following.epoch, state
        self._num_steps = following.num_steps
        if is_new:
            self._base = max(0, folds[Ledger].blocks.last_place - MOST_PLACE // 2)
        count = len(following.owners)
        ids = sorted(block for block in following.changed if 0 <= block < count)
        evicted = sorted(block for block in following.evicted if 0 <= block < count)
        rows = self._rows(sequences.changed)
        grown = sequences.grown - sequences.changed
        frame = Frame(
            frame=self.frame_number,
            epoch=self._epoch,
            up=self.target.source.up,
            now_ms=folds[Ledger].batch.time_ns // 1_000_000,
            wall_ms=folds[Ledger].batch.wall_ns // 1_000_000,
            pool=pool,
            figures=self._figures(),
            columns={name: base64(column) for name, column in self._columns(ids).items()}
            if ids and pool.map == "blocks"
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
        following.changed.clear()
        following.evicted.clear()
        sequences.changed.difference_update(rows)
        sequences.grown.clear()
        sequences.gone.clear()
        return frame

    def _rows(self, numbers: Iterable[int]) -> list[int]:
        known = self.following.sequences.known
        return list(islice((number for number in numbers if number in known), MAX_ROWS))

    def _columns(self, ids: list[int] | None) -> dict[str, bytes]:
        ledger, cache = self.target.folds[Ledger], self.target.folds[Cache]
        return columns(
            self.following,
            ledger.blocks,
            cache.blocks if cache.known else None,
            ids,
            reserved=ledger.reserved,
            base=self._base,
        )

    def _pool(self) -> Pool:
        ledger = self.target.folds[Ledger]
        is_known = ledger.known and self.target.source.state_known
        has_cells = len(self.following.owners) == ledger.num_blocks
        kind = "blocks" if is_known and has_cells else "unknown"
        return Pool(
            map="counted" if ledger.is_counted else kind,
            num_blocks=ledger.num_blocks,
            reserved=ledger.reserved,
            block_size=ledger.block_size,
            bytes_per_block=ledger.bytes_per_block,
            active=ledger.num_active if is_known else None,
            cached=ledger.num_cached if is_known else None,
            free=ledger.num_free if is_known else None,
            imbalance=ledger.imbalance if is_known else None,
        )

    def _figures(self) -> Figures:
        folds = self.target.folds
        requests, steps, cache = folds[Requests], folds[Steps], folds[Cache]
        costs = folds[Preemption].costs.values()
        missed = cache.missed_blocks
        return Figures(
            waiting=max(0, requests.sequences_waiting),
            running=max(0, requests.sequences_running),
            steps=sum(steps.duration.counts),
            prefill_tokens=steps.prefill_tokens,
            decode_tokens=steps.decode_tokens,
            preemptions=sum(cost.preemptions for cost in costs),
            recomputed_tokens=sum(cost.recomputed_tokens for cost in costs),
            queried_blocks=cache.queried_blocks["first"],
            hit_blocks=cache.hit_blocks["first"],
            missed_evicted_blocks=missed.get("evicted", 0) + missed.get("forgotten", 0),
            evictions=sum(folds[Churn].evictions.values()),
            regret_tokens=cache.regret.tokens,
        )
