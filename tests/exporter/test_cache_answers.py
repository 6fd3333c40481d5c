"""Answers about the cache: residency and top prefixes, for the scenario and for whole lives."""

import threading
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given

from kvscope_events.events import BlocksEvicted, PoolCreated, PrefixLookup
from kvscope_exporter.answers import residency
from kvscope_exporter.answers.ages import _CHUNK, PresentAges, present
from kvscope_exporter.answers.prefixes import PREFIXES, PrefixesAnswer
from kvscope_exporter.answers.question import QueryContext, Question
from kvscope_exporter.answers.residency import RESIDENCY, ResidencyAnswer
from kvscope_exporter.clock import Clock
from kvscope_exporter.state import Cache, Folds, Ledger
from kvscope_exporter.state.buckets import RESIDENCY_SECONDS
from kvscope_exporter.state.cache.blocks import NEVER
from tests.exporter import cache_oracle as oracle
from tests.exporter.cache_record import BLOCK_SIZE, Life, folded, lives, names_of
from tests.exporter.machine import MACHINE
from tests.exporter.page import FIXED_CLOCK, HELLO, make_exporter, value
from tests.exporter.scenario import play
from tests.exporter.stream import batch_of

SECOND = 10**9
T = TypeVar("T")


class _Folds(Folds):
    def __init__(self, cache: Cache) -> None:
        self._folds = {Cache: cache}


def answer(question: Question[T], cache: Cache, clock: Clock = FIXED_CLOCK) -> T:
    asked = QueryContext(hello=HELLO, folds=_Folds(cache), machine=MACHINE, clock=clock)
    return question.finish(question.read(asked))


def of_scenario(question: Question[Any]) -> dict[str, object]:
    exporter, subscription = make_exporter()
    play(subscription)
    (engine,) = exporter.answer(question).engines
    assert engine.unknown is None
    found = msgspec.to_builtins(engine.answer)
    assert isinstance(found, dict)
    return found


def classes(*blocks: int) -> list[dict[str, object]]:
    bounds = [*RESIDENCY_SECONDS, None]
    return [
        {"up_to_seconds": bound, "blocks": count}
        for bound, count in zip(bounds, blocks, strict=True)
    ]


def test_residency_of_the_scenario() -> None:
    found = of_scenario(RESIDENCY)
    assert "not over" in str(found.pop("censoring"))
    one, none = classes(1, 0, 0, 0, 0, 0), {"unknown_blocks": 0}
    assert found == {
        "retention_seconds": 1.0,
        "lifetime": {"classes": one, "blocks": 1, "mean_seconds": 0.02, **none},
        "idle_before_eviction": {"classes": one, "blocks": 1, "mean_seconds": 0.0, **none},
        "reuse_gap": {"classes": one, "blocks": 1, "mean_seconds": 0.0, **none},
        "resident": {"classes": classes(1, 2, 0, 0, 0, 0), "blocks": 3, **none},
        "idle": {"classes": one, "blocks": 1, **none},
        "otherwise_blocks": 0,
    }


def test_ages_of_one_moment_are_sorted_while_the_folds_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    exporter.render()
    (target,) = exporter.targets
    state, cache = target.folds[Ledger].state(), target.folds[Cache]
    (idle,), after = state.lru, cache.batch.seq + 1
    name = state.hashes[idle]
    assert name is not None
    eviction = batch_of(BlocksEvicted([idle], [name], "capacity"), seq=after, time_ns=0)

    def while_it_is_evicted(times: Sequence[int], now_ns: int, unknown: int) -> PresentAges:
        if cache.batch.seq != after:
            subscription.put(eviction)
            drained = threading.Thread(target=target.pipeline.drain, daemon=True)
            drained.start()
            drained.join(10)
            assert not drained.is_alive()
        return present(times, now_ns, unknown)

    monkeypatch.setattr(residency, "present", while_it_is_evicted)
    (engine,) = exporter.answer(RESIDENCY).engines
    assert engine.unknown is None
    assert (engine.answer.resident.blocks, engine.answer.idle.blocks) == (3, 1)
    assert cache.blocks.names[idle] is None


def test_prefixes_of_the_scenario() -> None:
    found = of_scenario(PREFIXES)
    assert "parted" in str(found.pop("definition"))
    assert "neither text" in str(found.pop("names"))
    first = {
        **{"prefix": "00000000", "continues": None, "length_tokens": 4, "hits": 2},
        **{"saved_tokens": 8, "lost_tokens": 0, "max_error_tokens": 0},
        **{"last_use_seconds_ago": 1.0, "resident": True},
    }
    second = {
        **{"prefix": "00000000", "continues": "00000000", "length_tokens": 8, "hits": 0},
        **{"saved_tokens": 0, "lost_tokens": 4, "max_error_tokens": 0},
        **{"last_use_seconds_ago": 1.0, "resident": True},
    }
    assert found == {
        "saved_tokens": 8,
        "lost_tokens": 4,
        "counted_prefixes": 2,
        "counted_saved_tokens": 8,
        "counted_lost_tokens": 4,
        "uncounted_at_most_tokens": 0,
        "most_saved": [first],
        "most_lost": [second],
    }


def test_nothing_is_answered_while_the_state_is_unknown() -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    exporter.render()
    subscription.put(batch_of(seq=99, time_ns=0))
    for question in (RESIDENCY, PREFIXES):
        (engine,) = exporter.answer(question).engines
        assert engine.answer is None
        assert engine.unknown


@given(life=lives())
def test_resident_blocks_have_the_ages_found_by_looking_back(life: Life) -> None:
    heard = oracle.flat(life.record)
    if not oracle.is_known(heard):
        return
    cache, now_ns = folded(life.record), life.now_ns + 7 * SECOND
    found = answer(RESIDENCY, cache, Clock(monotonic_ns=lambda: now_ns))
    assert isinstance(found, ResidencyAnswer)
    state = life.pool.snapshot()
    resident, idle = oracle.Ages([]), oracle.Ages([])
    for block, name in enumerate(state.hashes):
        if name is not None:
            resident.add(now_ns, oracle.written_ns(heard, block))
    for block in state.lru:
        idle.add(now_ns, oracle.idle_ns(heard, block)[1])
    for ages, expected in ((found.resident, resident), (found.idle, idle)):
        assert [one.blocks for one in ages.classes] == expected.counts(RESIDENCY_SECONDS)
        assert (ages.blocks, ages.unknown_blocks) == (len(expected.known), expected.unknown)


def test_more_blocks_than_are_sorted_at_once() -> None:
    now_ns = 5000 * SECOND
    times = [NEVER, 0, now_ns - 3600 * SECOND, now_ns - 2 * SECOND, now_ns, now_ns + 1]
    ages = present(times * _CHUNK, now_ns, 0)
    assert [one.blocks // _CHUNK for one in ages.classes] == [2, 1, 0, 0, 1, 1]
    assert isinstance(ages, PresentAges)


def test_the_twenty_heaviest_are_listed_and_the_rest_is_bounded() -> None:
    cache = Cache(counters=40)
    cache.on_batch(batch_of(PoolCreated(999, BLOCK_SIZE, 0)))
    for number in range(60):
        path = names_of([number] * (number + 1))
        cache.on_batch(batch_of(PrefixLookup(0, 4 * len(path) + 1, path, len(path))))
    found = answer(PREFIXES, cache)
    assert isinstance(found, PrefixesAnswer)
    assert len(found.most_saved) == 20
    assert found.most_lost == []
    saved = [prefix.saved_tokens for prefix in found.most_saved]
    assert saved == sorted(saved, reverse=True)
    assert found.saved_tokens == 4 * sum(range(1, 61))
    assert found.counted_prefixes == 40
    assert found.counted_saved_tokens < found.saved_tokens
    assert found.uncounted_at_most_tokens <= found.saved_tokens / 40
    assert not any(prefix.resident for prefix in found.most_saved)


def test_time_passes_while_the_engine_is_silent() -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    assert value(exporter, "kvscope_kv_retention_seconds") == 1, "the last batch is a second old"
