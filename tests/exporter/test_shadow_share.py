"""Shares of roots: which prompts they are, how large they are, and what is concluded from them."""

from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from random import Random

import pytest

from benchmarks.shadow_cost import Fixed
from kvscope_events.events import (
    BlocksAllocated,
    BlocksReleased,
    EngineEvent,
    PoolCreated,
    PrefixLookup,
    SequenceAdded,
    StepCompleted,
    StepScheduled,
)
from kvscope_events.names import CONTENT_BYTES, suffix_of
from kvscope_exporter.state.simulation.budget import LEAST_SHARE, PATIENCE, PERIOD_NS, Budget
from kvscope_exporter.state.simulation.coordinator import Coordinator
from kvscope_exporter.state.simulation.groups import layers_of
from kvscope_exporter.state.simulation.roots import SHARED_BY, WINDOW, Roots, Sample
from kvscope_exporter.state.simulation.simulation import Simulation
from tests.exporter.shadow_stream import FULL, SIZE
from tests.exporter.shadow_stream import WINDOW as WINDOW_GROUP

USABLE = 1600
RUNNING = 4


def name(*place: int) -> bytes:
    return sha256(repr(place).encode()).digest()[:CONTENT_BYTES]


def learnt(prompts: list[list[bytes]]) -> Roots:
    roots = Roots()
    for prompt in prompts:
        roots.learn(prompt)
    return roots


def test_a_prompt_without_a_shared_beginning_has_its_first_block_as_root() -> None:
    prompts = [[name(number, block) for block in range(4)] for number in range(WINDOW)]
    roots = learnt(prompts)
    assert [roots.find(prompt) for prompt in prompts] == [prompt[0] for prompt in prompts]
    assert roots.num_shared == 0
    assert roots.find([]) is None


def test_the_root_lies_below_what_many_prompts_begin_with() -> None:
    system = [name(0, block) for block in range(10)]
    prompts = [[*system, name(1, number), name(2, number)] for number in range(WINDOW)]
    roots = learnt(prompts)
    assert {roots.find(prompt) for prompt in prompts} == {name(1, n) for n in range(WINDOW)}
    assert roots.num_shared == 10


def test_turns_of_a_conversation_have_one_root() -> None:
    system = [name(0, block) for block in range(10)]
    turns = [
        system + [name(1 + number // 4, block) for block in range(2 + number % 4)]
        for number in range(WINDOW)
    ]
    roots = learnt(turns)
    assert len({roots.find(turn) for turn in turns}) == WINDOW // 4


def test_a_beginning_that_few_prompts_share_is_no_shared_one() -> None:
    prompts = [[name(min(0, number - SHARED_BY)), name(9, number)] for number in range(WINDOW)]
    few = learnt(
        [[name(max(0, number - SHARED_BY + 2)), name(9, number)] for number in range(WINDOW)]
    )
    assert few.find([name(0), name(9, 1)]) == name(0)
    assert learnt(prompts).find(prompts[-1]) == name(9, WINDOW - 1)


def test_a_share_of_the_roots_is_taken_always_the_same_ones() -> None:
    lookups = [PrefixLookup(n, 17, [name(n)], 0) for n in range(4000)]
    quarter, eighth = (
        {lookup.sequence for lookup in lookups if Sample(Roots(), share).takes(lookup)}
        for share in (1 / 4, 1 / 8)
    )
    assert eighth < quarter
    assert len(quarter) == pytest.approx(1000, rel=0.1)


def test_only_events_of_the_sequences_in_it_are_taken() -> None:
    sample = Sample(Roots(), 0.5)
    taken = {n for n in range(50) if sample.takes(PrefixLookup(n, 17, [name(n)], 0))}
    assert 0 < len(taken) < 50
    for n in range(50):
        assert sample.takes(SequenceAdded(n, n, 17, 1))
        assert sample.takes(BlocksAllocated(n, [n], "decode")) == (n in taken)
        assert sample.takes(BlocksReleased(n, [], [n], [], "out_of_window")) == (n in taken)
        assert sample.takes(BlocksReleased(n, [], [n], [], "finished")) == (n in taken)
        assert not sample.takes(BlocksAllocated(n, [n], "decode"))


def after(budget: Budget, cost: float, periods: int, usable: int = 1 << 20) -> float:
    for _ in range(periods):
        budget.spend(int(cost * PERIOD_NS))
        now_ns = (budget._began_ns or 0) + PERIOD_NS
        budget.at(now_ns, usable)
    return budget.share


def test_a_simulation_that_takes_too_much_of_a_core_is_cut_at_once() -> None:
    budget = Budget()
    budget.at(0, 1 << 20)
    assert after(budget, 0.05, 50) == 1
    assert after(budget, 0.30, 1) == 1 / 8
    assert after(budget, 0.06, 1) == 1 / 16
    assert after(budget, 9.0, 1) == LEAST_SHARE


def test_a_share_of_a_small_pool_is_not_cut_further() -> None:
    budget = Budget()
    budget.at(0, 1000)
    assert after(budget, 0.9, 5, usable=1000) == 1 / 2


def test_a_share_that_costs_little_for_long_is_doubled() -> None:
    budget = Budget()
    budget.at(0, 1 << 20)
    after(budget, 0.15, 1)
    assert after(budget, 0.005, PATIENCE - 1) == 1 / 4
    assert after(budget, 0.02, 1) == 1 / 4, "once more it costs more"
    assert after(budget, 0.005, PATIENCE) == 1 / 2
    assert after(budget, 0.005, PATIENCE) == 1
    assert after(budget, 0.005, PATIENCE) == 1


def served(requests: int, seed: int = 0) -> Iterator[list[EngineEvent]]:
    """Conversations below one system prompt, in a pool whose rules are those of the simulation."""
    random = Random(seed)
    groups = [WINDOW_GROUP, FULL]
    yield [PoolCreated(USABLE + 1, SIZE, 0, 1, groups=groups, retention=0)]
    pool = Coordinator(USABLE, layers_of(groups, 0), SIZE)
    system = [random.randbytes(CONTENT_BYTES) for _ in range(6)]
    turns = [list(system) for _ in range(150)]
    for number in range(1, requests + 1):
        events: list[EngineEvent] = []
        if number > RUNNING:
            pool.end(number - RUNNING)
            events.append(BlocksReleased(number - RUNNING, [], [], [], "finished"))
        place = int(len(turns) * random.random() ** 2)
        path = turns.pop(place) + [random.randbytes(CONTENT_BYTES) for _ in range(4)]
        turns.insert(0, path if len(path) < 40 else list(system))
        tokens = len(path) * SIZE + 1
        found = pool.admit(number, path, tokens, tokens, len(path))
        computed = tokens - found * SIZE
        while pool.owes(number):
            assert pool.compute(number, 1000, 0)
        names = [one + suffix_of(1) for one in path]
        yield [
            *events,
            SequenceAdded(number, number, tokens, 1),
            PrefixLookup(number, tokens, names, found),
            BlocksAllocated(number, [], "prefill"),
            StepScheduled([number], [computed], 1000 - computed),
            StepCompleted(1, 0, 0, 0, computed, 0, None, 0, 0, 0, [number], [number], 0, 0),
        ]


def simulated(share: float, requests: int = 4000) -> tuple[Simulation, list[dict[str, int]]]:
    simulation, shown = Simulation(Fixed(share)), []
    for number, events in enumerate(served(requests)):
        for event in events:
            simulation.take(event)
        simulation.at(number * 10**8)
        if number % 50 == 0:
            shown.append(simulation.hit_blocks())
    simulation.check()
    return simulation, shown


def test_a_share_finds_what_all_prompts_do() -> None:
    every, _ = simulated(1)
    share, shown = simulated(1 / 2)
    assert every.agrees()
    assert share.agrees()
    truth, found = every.curve(200), share.curve(200)
    assert truth is not None
    assert found is not None
    ratios = {point.scale: point.hit_blocks / point.queried_blocks for point in truth.points}
    for point in found.points:
        assert point.queried_blocks == truth.queried_blocks
        assert point.hit_blocks / point.queried_blocks == pytest.approx(
            ratios[point.scale], abs=0.05
        )
    assert {point.scale for point in found.points} >= {0.5, 1, 2}
    assert min(ratios.values()) < max(ratios.values()) - 0.1, "the sizes make no difference"
    same = next(point for point in found.points if point.scale == 1)
    assert same.hit_blocks / same.queried_blocks == pytest.approx(ratios[1], abs=0.01)
    later = [one for one in shown if one]
    assert later
    for before, now in pairwise(later):
        assert all(now[scale] >= blocks for scale, blocks in before.items() if scale in now)


def test_the_simulation_starts_over_with_the_share_that_it_can_afford() -> None:
    simulation = Simulation(Budget())
    for number, events in enumerate(served(2000)):
        for event in events:
            simulation.take(event)
        if number < 400:
            simulation.spend(15 * 10**6)  # of 100 ms
        simulation.at(number * 10**8)
    assert simulation.share == 1 / 4
