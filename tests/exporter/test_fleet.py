"""A fleet read through projections equals plain loops over the same events, whatever is lost."""

from collections import Counter
from hashlib import sha256

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvscope_events.bus import EventBus
from kvscope_events.events import (
    Batch,
    BlocksCached,
    BlocksEvicted,
    EngineEvent,
    Hello,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
)
from kvscope_exporter.answers.projection import positions_text
from kvscope_exporter.fleet.fleet import Fleet
from kvscope_exporter.state import Cache
from kvscope_exporter.state.fleet import Steps
from kvscope_exporter.state.fleet.projected import EventsDocument
from kvscope_exporter.state.fleet.projection import Projection
from kvscope_exporter.targets.exporter import in_process
from kvscope_exporter.web.projection import Projections
from tests.exporter.fleet_oracle import Oracle
from tests.exporter.stream import hello
from tests.exporter.tree_pool import TreePool

ENGINES = 3
USABLE = 9
QUEUE_BATCHES = 3
KEPT_BYTES = 1000
"""A projection keeps some four moments, so that rings overflow."""
SPACES = ("one", "two")
SIDECAR = "one"
DECODER = msgspec.msgpack.Decoder(EventsDocument)
CHOICES = st.lists(st.integers(0, 1), min_size=1, max_size=4)
NUMBERS = st.integers(0, ENGINES - 1)


def path_of(choices: list[int]) -> list[bytes]:
    """Names of whole prefixes that differ in their first bytes, as digests do."""
    prefixes = [bytes(choices[: depth + 1]) for depth in range(len(choices))]
    return [sha256(prefix).digest()[:16] for prefix in prefixes]


Names = tuple[bytes, ...]


def is_projected(event: EngineEvent | None) -> bool:
    """Whether a fleet hears of it; None stands for a gap."""
    match event:
        case PrefixLookup(resumed=resumed):
            return not resumed
        case None | PoolCreated() | PoolSnapshot() | BlocksCached() | BlocksEvicted():
            return True
    return False


class Log:
    """A listener that keeps what an engine's folds were given.

    A snapshot is left out where no gap came before it: it repeats what the events have said.
    """

    name = "log"
    num_pending = 0
    wants_snapshot = False

    def __init__(self) -> None:
        self.entries: list[tuple[int, EngineEvent | None]] = []
        self.is_complete = False  # from an event that said the whole pool, without a gap since

    def on_batch(self, batch: Batch) -> None:
        for event in batch.events:
            if not (self.is_complete and isinstance(event, PoolSnapshot)):
                self.entries.append((batch.wall_ns, event))
            self.is_complete |= isinstance(event, PoolCreated | PoolSnapshot)

    def on_gap(self) -> None:
        self.entries.append((self.entries[-1][0] if self.entries else 0, None))
        self.is_complete = False

    def take(self) -> list[tuple[int, EngineEvent | None]]:
        entries, self.entries = self.entries, []
        return entries


class Engine:
    """A pool behind a bus whose queue is short, and its exporter."""

    def __init__(self, number: int, life: int, name_space: str) -> None:
        self.bus = EventBus()
        self.name_space = name_space
        self.hello: Hello = hello(
            engine=str(number), session=f"{number}-{life}", name_space=name_space
        )
        self.watch()
        self.bus.emit(self.hello)
        self.pool = TreePool(USABLE, self.bus.emit)
        self.bus.provide_snapshot(lambda: [self.hello, self.pool.snapshot()])
        self.bus.flush()
        self.sequences = 0

    def watch(self) -> None:
        """Begin an exporter, which knows nothing yet."""
        self.log = Log()
        subscription = self.bus.subscribe(queue_batches=QUEUE_BATCHES)
        self.exporter = in_process(subscription, listeners=[self.log])
        (target,) = self.exporter.targets
        target.folds[Projection]._kept_bytes = KEPT_BYTES

    def drain(self) -> None:
        (target,) = self.exporter.targets
        target.pipeline.drain()

    @property
    def is_known(self) -> bool:
        (target,) = self.exporter.targets
        return target.source.state_known

    @property
    def knows_names(self) -> bool:
        (target,) = self.exporter.targets
        return target.folds[Cache].known


class FleetMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lives = 0
        self.engines = [self.started(number, SPACES[0]) for number in range(ENGINES)]
        self.projections = Projections(
            lambda: {f"server {number}": e.exporter for number, e in enumerate(self.engines)}
        )
        self.fleet = Fleet(horizon=1 << 10)
        self.oracles = {name_space: Oracle(ENGINES) for name_space in SPACES}
        self.followed: list[str | None] = [None] * ENGINES  # in which name space
        self.known = [False] * ENGINES

    def started(self, number: int, name_space: str) -> Engine:
        self.lives += 1
        return Engine(number, self.lives, name_space)

    @rule(number=NUMBERS, choices=CHOICES, keeps=st.booleans(), resumed=st.booleans())
    def request(self, number: int, choices: list[int], keeps: bool, resumed: bool) -> None:
        engine, path = self.engines[number], path_of(choices)
        pool = engine.pool
        if not pool.has_room(path, 1):
            for sequence in list(pool.running):
                pool.end(sequence)
        engine.sequences += 1
        pool.start(engine.sequences, path, 1, resumed=resumed)
        if not keeps:
            pool.end(engine.sequences)
        engine.bus.flush()

    @rule(number=NUMBERS)
    def reset(self, number: int) -> None:
        self.engines[number].pool.reset()
        self.engines[number].bus.flush()

    @rule(number=NUMBERS, name_space=st.sampled_from(SPACES))
    def restart(self, number: int, name_space: str) -> None:
        self.engines[number] = self.started(number, name_space)

    @rule()
    def the_sidecar_restarts(self) -> None:
        for engine in self.engines:
            engine.watch()

    @rule()
    def another_fleet_asks(self) -> None:
        self.projections.document("")

    @rule(number=NUMBERS)
    def another_reader_asks_for_the_state(self, number: int) -> None:
        engine = self.engines[number]
        engine.bus.emit(engine.hello)
        engine.bus.emit(engine.pool.snapshot())
        engine.bus.flush()

    @rule()
    def the_sidecar_does_not_answer(self) -> None:
        self.fleet.forget(SIDECAR)
        for number in range(ENGINES):
            self.forgotten(number)

    @rule()
    def ask(self) -> None:
        for number, engine in enumerate(self.engines):
            engine.drain()
            if self.session(number) != engine.hello.session:
                self.forgotten(number)
        text = positions_text(self.fleet.positions(SIDECAR))
        document = DECODER.decode(self.projections.document(text))
        self.expect({int(part.engine) for part in document.parts if part.is_gap})
        self.fleet.fold([(SIDECAR, document)])

    @invariant()
    def the_sums_are_those_of_plain_loops(self) -> None:
        for space in self.fleet.read(list):
            oracle = self.oracles[space.name_space]
            assert space.waterfall.totals == Steps(**oracle.sums)
            held = [+counter for counter in oracle.held]
            assert space.waterfall.holders.resident_blocks == sum(map(Counter.total, held))
            assert space.waterfall.holders.distinct_names == len(set().union(*held))
        states = {replica.key[2]: replica.state for replica in self.fleet.replicas()}
        for number in range(ENGINES):
            expected = "counted" if self.known[number] else "unknown"
            assert states.get(str(number), "unknown") == expected, number

    def session(self, number: int) -> str | None:
        """The session of the engine that the fleet follows under this number."""
        return next((s for s in self.fleet.positions(SIDECAR) if s.startswith(f"{number}-")), None)

    def forgotten(self, number: int) -> None:
        self.lost(number)
        self.followed[number] = None

    def lost(self, number: int) -> None:
        self.known[number] = False
        for oracle in self.oracles.values():
            oracle.replace(number, [])

    def expect(self, gaps: set[int]) -> None:
        """Apply what the answer should say.

        gaps: engines of which it says that moments are missing; all others must be complete.
        """
        steps: list[tuple[int, int, EngineEvent | Names | None]] = []
        for number, engine in enumerate(self.engines):
            entries = engine.log.take()
            if not engine.is_known:
                self.forgotten(number)
                continue
            if self.followed[number] is None:
                self.followed[number], entries = engine.name_space, []
            elif number in gaps:
                self.lost(number)
                entries = []
            steps += [(wall_ns, number, event) for wall_ns, event in entries]
            if engine.knows_names:  # as they are after its last step
                at_ns = max((at for at, event in entries if is_projected(event)), default=0)
                steps.append((at_ns, number, tuple(engine.pool.names.values())))
        for _, number, event in sorted(steps, key=lambda entry: entry[0]):
            self.apply(number, event)

    def apply(self, number: int, event: EngineEvent | Names | None) -> None:
        name_space, known = self.followed[number], self.known[number]
        assert name_space is not None
        oracle = self.oracles[name_space]
        match event:
            case tuple():
                if not known:
                    self.known[number] = True
                    oracle.replace(number, event)
            case PoolCreated():
                self.known[number] = True
                oracle.replace(number, [])
            case None | PoolSnapshot():
                self.lost(number)
            case PrefixLookup(resumed=False) if known:
                assert oracle.look_up(number, event.hashes) == event.hit_blocks
            case BlocksCached() if known:
                oracle.store(number, event.hashes)
            case BlocksEvicted() if known:
                oracle.remove(number, event.hashes)


TestFleet = FleetMachine.TestCase
