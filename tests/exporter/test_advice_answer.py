"""`/api/advice` and its metrics: facts from folds and machine, of our engine and of others."""

import dataclasses

import msgspec
import pytest

from kvscope_events.bus import Subscription
from kvscope_events.events import StartupProfiled
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.answers.advice import ADVICE
from kvscope_exporter.answers.gather import gather, has_watermark
from kvscope_exporter.answers.question import Question, UnknownError
from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.host_memory import Available, HostMemory, available_memory
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.sources.pipeline import InProcessSource
from kvscope_exporter.targets.reply import ask, memory_of
from kvscope_exporter.targets.target import Target
from tests.exporter.machine import GIB, NOW_NS
from tests.exporter.page import HELLO, make_exporter, put, value
from tests.exporter.scenario import play
from tests.exporter.stream import hello
from tests.exporter.test_workers import TERMS, OneCard, sampled, scheduler, worker
from tests.fakes.nvml import MIB
from tests.support.loads import chats
from tests.support.paced import Paced
from tests.support.simulated_card import paced_on_card
from tools.checks.advice_check import pool_too_small
from tools.pictures.card import BYTES_PER_BLOCK, TOTAL

FACTS = Question(name="facts", summary="", events=(), folds=ADVICE.folds, read=gather)


def facts_of(engine: Paced) -> Facts:
    (target,) = engine.exporter.targets
    return target.answer(FACTS, engine.machine, memory_of([target]))


def test_the_first_proposal_for_a_pool_that_is_too_small_comes_true() -> None:
    outcome = pool_too_small(seconds=90)
    assert outcome.proposal.gain.hit_ratio_to is not None
    assert [figure.name for figure in outcome.figures if not figure.is_close] == []
    (hits, *_) = outcome.figures
    assert hits.outcome > hits.before + 10, "percent"


def test_facts_of_an_engine_on_a_card_that_sized_its_pool() -> None:
    engine, card = paced_on_card(utilization=0.9, max_num_batched_tokens=512, max_num_seqs=4)
    engine.play(chats(seed=1, seconds=20, calls_per_second=12), 20)
    facts = facts_of(engine)
    assert facts.pool_option == "gpu_memory_utilization"
    assert facts.sizing is not None
    assert facts.sizing.utilization == 0.9
    (room,) = facts.rooms
    assert room.name == "GPU 0"
    assert room.total_bytes == TOTAL
    assert room.bytes_per_block == BYTES_PER_BLOCK
    assert room.largest_step_bytes == card.peak
    held_back = min(card.cached, 160 * MIB) + card.cached // 16
    assert room.free_bytes == card.free + card.cached - held_back
    assert facts.max_num_seqs == 4
    assert facts.load is not None
    assert facts.load.largest_step <= 512
    assert facts.curve is not None
    assert facts.curve.error_ratio is not None


@pytest.mark.parametrize(
    ("server", "version", "has"),
    [
        ("vllm", "0.32.0", True),
        ("vllm", "1.0.0rc1", True),
        ("vllm", "0.9.2", False),
        ("vllm", "dev", False),
        ("kvscope", "0.32.0", False),
    ],
)
def test_a_watermark_is_an_option_of_the_vllms_that_are_known_to_have_it(
    server: str, version: str, has: bool
) -> None:
    assert has_watermark(hello(server=server, server_version=version)) == has


def test_time_that_a_pool_waits_for_its_first_request_does_not_lower_the_gain_a_second() -> None:
    engine, _ = paced_on_card(utilization=0.9, max_num_batched_tokens=512, max_num_seqs=4)
    engine.play([], 60)
    engine.play(chats(seed=1, seconds=20, calls_per_second=12), 20)
    facts = facts_of(engine)
    assert facts.curve is not None
    assert facts.curve.seconds == facts.seconds <= 21


def test_an_exporter_that_came_later_than_the_pool_knows_the_largest_step() -> None:
    engine, _ = paced_on_card(utilization=0.9, max_num_batched_tokens=512, max_num_seqs=4)
    engine.play(chats(seed=1, seconds=10, calls_per_second=12), 10)
    engine.play([], 30)
    source = InProcessSource(engine._bus.subscribe(1 << 12))
    late = Target(source, compat=(), clock=engine.exporter._clock)
    few = chats(seed=2, seconds=5, calls_per_second=2, turns=1, system_tokens=8, turn_tokens=8)
    engine.play(few, 5)
    facts = late.answer(FACTS, engine.machine, memory_of([late]))
    assert facts.largest_step == facts_of(engine).largest_step
    assert facts.largest_step is not None


def test_facts_of_an_engine_on_a_cpu() -> None:
    def host(_pid: int) -> HostMemory:
        return HostMemory(resident=GIB, limit=8 * GIB, usage=6 * GIB, unreclaimable=4 * GIB)

    machine = Machine(host=host, available=lambda: Available(64 * GIB, 30 * GIB))
    engine = Paced(num_blocks=1024, bytes_per_block=2 * MIB, machine=machine, terms={"total": 9})
    engine.play([], 2)
    facts = facts_of(engine)
    assert facts.pool_option == "kv_cache_memory_bytes"
    (room,) = facts.rooms
    assert (room.name, room.total_bytes, room.largest_step_bytes) == ("host", 8 * GIB, 0)
    # The group has 4 GiB left, of which the pool has not yet touched one.
    assert room.free_bytes == 3 * GIB
    elsewhere = dataclasses.replace(machine, available=lambda: None)
    engine.machine = elsewhere
    assert facts_of(engine).rooms == ()


def test_the_card_of_an_observed_engine_is_that_of_its_workers() -> None:
    profiled = StartupProfiled({**TERMS, "activation_peak": 2 * GIB})
    targets = [scheduler(), worker(0, sampled(0), profiled), worker(1, sampled(1), profiled)]
    machine = Machine(gpu=OneCard())
    processes = memory_of(targets)
    with pytest.raises(UnknownError, match="not been created yet"):
        targets[1].answer(FACTS, machine, processes)
    facts = targets[0].answer(FACTS, machine, processes)
    (room,) = facts.rooms
    # Free, and what three allocators cache and can return; the scenario's engine has one as well.
    assert room.free_bytes == 9 * GIB + 3 * GIB + 2 * GIB
    assert room.largest_step_bytes == 4 * GIB
    assert room.bytes_per_block == -(-64 * GIB // 10), "of all that have a part of the pool"
    assert facts.engines == 1
    without = targets[0].answer(FACTS, Machine(), processes)
    assert without.rooms == (), "nobody says what is left"


def test_without_a_pool_the_answer_is_unknown() -> None:
    exporter, _ = make_exporter()
    (engine,) = exporter.answer(ADVICE).engines
    assert engine.answer is None
    assert engine.unknown == "the engine's state is not known: it is not connected, or lost"
    assert value(exporter, "kvscope_advice_value") is None


def test_a_moment_of_load_is_no_ground_for_advice() -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    (engine,) = exporter.answer(ADVICE).engines
    assert engine.answer.proposals == []
    assert engine.answer.unknown is None
    assert any("less than 30 s of load" in reason for reason in engine.answer.declined)
    assert msgspec.json.decode(msgspec.json.encode(exporter.answer(ADVICE)))["question"] == "advice"


def test_proposals_are_on_the_page_while_they_are_made() -> None:
    engine, _ = paced_on_card(num_blocks=1800, foreign_bytes=GIB // 2, max_num_batched_tokens=2048)
    load = chats(seed=3, seconds=40, calls_per_second=2, turn_tokens=900, output_tokens=60)
    engine.play(load, 40)
    (proposal, *_) = engine.advice().proposals
    option = proposal.option
    assert option == "max_num_batched_tokens"
    assert engine.metric("kvscope_advice_value", option=option) == proposal.proposed
    saved = engine.metric("kvscope_advice_saved_tokens_per_second", option=option)
    assert saved == proposal.gain.saved_tokens_per_second
    assert engine.advice().idle_seconds < 60


def test_advice_says_of_which_minutes_it_is_and_ends_when_the_engine_is_idle() -> None:
    engine, _ = paced_on_card(num_blocks=1800, foreign_bytes=GIB // 2, max_num_batched_tokens=2048)
    load = chats(seed=3, seconds=40, calls_per_second=2, turn_tokens=900, output_tokens=60)
    engine.play(load, 40)
    under_load = engine.advice()
    engine.play([], 120)
    later = engine.advice()
    assert later.proposals == under_load.proposals, "of the same minutes"
    assert later.end_seconds == pytest.approx(under_load.end_seconds)
    assert later.idle_seconds == pytest.approx(under_load.idle_seconds + 120, abs=1)
    assert engine.metric("kvscope_advice_value") == 0, "the page is of this moment"
    assert engine.metric("kvscope_advice_saved_tokens_per_second") == 0
    engine.play([], 240)
    (answer,) = engine.ask(ADVICE).engines
    assert answer.answer is None
    assert answer.unknown.startswith("the engine has been idle for 6 minutes: ")


def test_an_engine_that_cannot_tell_what_it_takes_says_so() -> None:
    subscription = Subscription(8)
    put(subscription, -1, NOW_NS, msgspec.structs.replace(HELLO, tells=["Hello", "PoolCreated"]))
    play(subscription)
    target = Target(InProcessSource(subscription), compat=(), clock=Clock())
    (engine,) = ask(ADVICE, [target], Machine()).engines
    assert engine.unknown is not None
    assert "does not report RequestPreempted" in engine.unknown


def test_a_server_with_other_options_gets_no_advice() -> None:
    subscription = Subscription(8)
    put(subscription, -1, NOW_NS, msgspec.structs.replace(HELLO, server="dynamo"))
    play(subscription)
    target = Target(InProcessSource(subscription), compat=(), clock=Clock())
    (engine,) = ask(ADVICE, [target], Machine()).engines
    assert engine.unknown == "the options of a dynamo are not known here"


def test_the_memory_of_this_machine(tmp_path: object) -> None:
    found = available_memory()
    assert found is not None
    assert 0 < found.available <= found.total
