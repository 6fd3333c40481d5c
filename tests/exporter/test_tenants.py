"""`GET /api/tenants`: use by tenant, in fixed memory, and never by name."""

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import (
    Batch,
    EngineEvent,
    FirstToken,
    PoolCreated,
    RequestArrived,
    RequestPreempted,
    RequestScheduled,
)
from kvscope_events.tenants import tenant_digest
from kvscope_exporter.answers.questions import QUESTIONS
from kvscope_exporter.answers.tenants import TENANTS
from kvscope_exporter.state.shown import SHOWN
from kvscope_exporter.state.tenants import Tenants, short_name
from tests.exporter.page import families, make_exporter
from tests.exporter.scenario import play
from tests.exporter.stream import ended, finished, put, step

SECOND_NS = 1_000_000_000
ALICE, BOB = (tenant_digest(name)[:8] for name in ("alice", "bob"))


def told(fold: Tenants, *events: EngineEvent) -> None:
    fold.on_batch(Batch(0, 0, list(events)))
    fold.check()


def one(request: int, user: str, prompt: int, output: int) -> tuple[EngineEvent, ...]:
    """A request from arrival to its end; half of its prompt was in the cache."""
    return (
        RequestArrived(request, prompt, 8, user),
        RequestScheduled(request, 2 * SECOND_NS, 0),
        FirstToken(request, 3 * SECOND_NS),
        ended(request, prompt_tokens=prompt, computed_tokens=prompt // 2),
        finished(request, prompt_tokens=prompt, output_tokens=output),
    )


def test_each_tenant_is_told_with_its_load_and_how_it_goes() -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    (engine,) = msgspec.json.decode(msgspec.json.encode(exporter.answer(TENANTS)))["engines"]
    answer: dict[str, Any] = engine["answer"]
    assert answer["tokens"] == sum(
        each["prompt_tokens"] + each["output_tokens"] for each in answer["tenants"]
    )
    named = {each["tenant"]: each for each in answer["tenants"]}
    tenant = named[tenant_digest("tenant")[:8]]
    assert tenant["mean_queue_seconds"] == 0.003
    assert tenant["mean_first_token_seconds"] == 0.03
    assert (tenant["requests"], tenant["finished"], tenant["running"]) == (1, 1, 0)
    assert tenant["computed_ratio"] == 1.0
    assert named[None]["preemptions"] == 1


def test_the_name_of_a_tenant_is_neither_kept_nor_told() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(9, 4, 0), RequestArrived(0, 9, 8, "alice"), step())
    told_to_people = msgspec.json.encode(exporter.answer(TENANTS)).decode()
    assert ALICE in told_to_people
    assert "alice" not in told_to_people
    assert exporter.targets[0].folds[Tenants].tenants.by_name.keys() == {ALICE}
    assert "alice" not in str(families(exporter))


def test_a_tenant_that_an_observer_hashed_is_not_hashed_again_but_must_be_a_digest() -> None:
    fold = Tenants()
    whole = tenant_digest("alice")
    told(
        fold,
        RequestArrived(1, 10, 8, whole, tenant_digest=True),
        RequestArrived(2, 10, 8, "bob", tenant_digest=True),
        RequestArrived(3, 10, 8, "", tenant_digest=True),
    )
    assert fold.tenants.by_name.keys() == {ALICE, BOB, short_name("")}


def test_what_runs_and_waits_is_told_before_it_ends() -> None:
    fold = Tenants()
    told(fold, *(RequestArrived(n, 10, 8, "alice") for n in range(3)), RequestScheduled(1, 0, 0))
    alice = fold.tenants.by_name[ALICE]
    assert (alice.requests, alice.running, alice.waiting, alice.finished) == (3, 1, 2, 0)
    told(fold, finished(0, reason="abort"), finished(1, reason="error"))
    assert (alice.running, alice.waiting, alice.finished, alice.failed) == (0, 1, 2, 1)


def test_after_a_gap_nothing_of_before_is_counted_for_anybody() -> None:
    fold = Tenants()
    told(fold, RequestArrived(0, 10, 8, "alice"), RequestArrived(1, 10, 8, "bob"))
    fold.on_gap()
    told(
        fold,
        RequestScheduled(0, SECOND_NS, 0),
        FirstToken(0, SECOND_NS),
        RequestPreempted(0, 0, "recompute", "out_of_blocks", 5, 2, 0),
        ended(0, prompt_tokens=10, computed_tokens=10),
        finished(0, output_tokens=7),
    )
    alice = fold.tenants.by_name[ALICE]
    assert (alice.waiting, alice.running, alice.finished, alice.preemptions) == (0, 0, 0, 0)
    assert (alice.output_tokens, alice.ended_tokens, fold.unattributed) == (0, 0, 1)
    fold.apply(step())
    assert fold.num_pending == 0, "the step has told its last tokens"


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 50)), max_size=60))
def test_no_tenant_has_more_than_is_said_and_errors_are_bounded(
    calls: list[tuple[str, int]],
) -> None:
    """Against plain counts; four counters for eight tenants."""
    fold, exact = Tenants(counters=4), Counter[str]()
    for number, (user, tokens) in enumerate(calls):
        told(fold, *one(number, user, tokens, tokens))
        exact[short_name(user)] += 2 * tokens
    for name, tokens in exact.items():
        tenant = fold.tenants.by_name.get(name)
        if tenant is None:
            assert tokens <= fold.tenants.least_weight
        else:
            counted = tenant.prompt_tokens + tenant.output_tokens
            assert counted <= tokens <= counted + tenant.error_tokens
            assert tenant.error_tokens <= sum(exact.values()) / 4 + 50
    if len(exact) <= 4:
        assert all(tenant.error_tokens == 0 for tenant in fold.tenants.by_name.values())


def test_a_tenant_without_a_counter_does_not_disturb_requests_under_way() -> None:
    fold = Tenants(counters=1)
    told(fold, RequestArrived(0, 10, 8, "alice"), RequestArrived(1, 10, 8, "bob"))
    told(fold, finished(0, output_tokens=5))
    bob = fold.tenants.by_name[BOB]
    assert (bob.waiting, bob.output_tokens, bob.error_tokens) == (1, 0, 10)


def test_adapters_have_their_own_sums_and_the_model_itself_is_none_of_them() -> None:
    exporter, subscription = make_exporter()
    put(
        subscription,
        *(0, 0),
        PoolCreated(9, 4, 0),
        RequestArrived(0, 40, 8, "alice", adapter="sql"),
        RequestArrived(1, 10, 8, "bob", adapter="sql"),
        RequestArrived(2, 30, 8, "bob"),
        RequestScheduled(0, SECOND_NS, 0),
        ended(0, prompt_tokens=40, computed_tokens=10),
        finished(0, output_tokens=5),
        step(),
    )
    (engine,) = msgspec.json.decode(msgspec.json.encode(exporter.answer(TENANTS)))["engines"]
    (adapter,) = engine["answer"]["adapters"]
    assert (adapter["adapter"], adapter["requests"], adapter["waiting"]) == ("sql", 2, 1)
    assert (adapter["prompt_tokens"], adapter["output_tokens"]) == (50, 5)
    assert (adapter["computed_ratio"], adapter["token_ratio"]) == (0.25, 1.0)
    assert len(engine["answer"]["tenants"]) == 2


TOP = "kvscope_top_tenant_tokens"


def test_the_largest_tenants_are_on_the_page_and_all_tokens_are_once() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(9, 4, 0), RequestArrived(0, 10, 8, ""), step())
    assert [sample.labels["tenant"] for sample in families(exporter)[TOP].samples] == ["other"]
    events = [event for n in range(1, 9) for event in one(n, f"user {n}", 10 * n, n)]
    put(subscription, 1, 1, *events, RequestArrived(9, 7, 8, ""), step())
    values = {sample.labels["tenant"]: sample.value for sample in families(exporter)[TOP].samples}
    assert len(values) == SHOWN + 1
    left = exporter.targets[0].folds[Tenants].shown.left
    assert sum(values.values()) + sum(left.values()) == 11 * sum(range(1, 9)) + 10 + 7
    assert values[short_name("user 8")] > values[short_name("user 5")]


def test_it_can_be_asked_by_name() -> None:
    assert QUESTIONS["tenants"] is TENANTS
