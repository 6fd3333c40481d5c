"""Requests placed on simulated replicas: counts against plain loops, policies by what they do."""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope.options.routing import Policy
from kvscope.whatif.routing.policies import LOAD_WEIGHT, Place, placing
from kvscope.whatif.routing.replay import Outcome, replay
from kvscope.whatif.routing.replica import Pace, Replica
from kvscope.whatif.routing.workload import Request, Workload
from kvscope_exporter.state.fleet import Steps
from tests.engine.test_trace_hits import tree_path

BLOCK_TOKENS = 4
PACE = Pace(prefill=10.0, decode=2.0)
TIERS = (1, 4, 9, 20)
PLACED = [policy for policy in Policy if policy is not Policy.RECORDED]


def request(path: Sequence[int], at: float = 0.0, **changes: Any) -> Request:
    fields = {"prompt_tokens": BLOCK_TOKENS * len(path), "output_tokens": 1} | changes
    return Request(at=at, names=path, **fields)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    choices = st.lists(st.integers(0, 2), min_size=1, max_size=6)
    at, requests = 0.0, []
    for _ in range(draw(st.integers(1, 40))):
        at += draw(st.sampled_from([0.0, 0.5, 3.0]))
        path = tree_path(draw(choices))
        looked_up = draw(st.integers(0, len(path)))
        requests.append(
            Request(
                at=at,
                names=path[:looked_up],
                prompt_tokens=BLOCK_TOKENS * looked_up + draw(st.integers(0, 3)),
                output_tokens=draw(st.integers(0, 9)),
                further=path[looked_up:],
                session=draw(st.integers(0, 4)),
                call=draw(st.none() | st.integers(0, 5)),
            )
        )
    return Workload(kind="trace", requests=requests, block_tokens=BLOCK_TOKENS)


class Noted:
    """A policy whose choices are written down."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.choices: list[int] = []

    def __call__(self, request: Request, replicas: Sequence[Replica]) -> int:
        self.choices.append(self.place(request, replicas))
        return self.choices[-1]


class Lru:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.names: OrderedDict[int, None] = OrderedDict()

    def prefix(self, path: Sequence[int]) -> int:
        return len(list(takewhile(self.names.__contains__, path)))

    def touch(self, path: Sequence[int]) -> None:
        for name in reversed(path):
            self.names[name] = None
            self.names.move_to_end(name)
        while len(self.names) > self.capacity:
            self.names.popitem(last=False)


def ref_replay(
    workload: Workload, choices: Sequence[int], replicas: int, capacity: int
) -> tuple[Steps, list[int], list[int], list[float]]:
    """Steps, hits by tier, work and waits, by plain loops over what each replica holds."""
    pools, tiers = [Lru(capacity) for _ in range(replicas)], [Lru(size) for size in TIERS]
    sums: Counter[str] = Counter()
    tier_hits, work, waits = [0] * len(TIERS), [0] * replicas, []
    free_at = [0.0] * replicas
    asked: set[int] = set()
    by_call: dict[Any, int] = {}
    remaining = iter(choices)
    for one in workload.requests:
        chosen = by_call[one.call] if one.call in by_call else next(remaining)
        if one.call is not None:
            by_call[one.call] = chosen
        path = one.names
        own = pools[chosen].prefix(path)
        anywhere = len(list(takewhile(lambda n: any(n in p.names for p in pools), path)))
        # Blocks that a request generated were never asked for, but a pool has them.
        seen = max(anywhere, len(list(takewhile(asked.__contains__, path))))
        best = max(pool.prefix(path) for pool in pools)
        sums.update(own=own, best=best, anywhere=anywhere, seen=seen, asked=len(path))
        for number, tier in enumerate(tiers):
            tier_hits[number] += max(own, tier.prefix(path))
            tier.touch(path)
        pools[chosen].touch([*path, *one.further])
        asked.update(path)
        work[chosen] += len(path) - own
        begin = max(one.at, free_at[chosen])
        waits.append(begin - one.at)
        computed = one.prompt_tokens - min(own * BLOCK_TOKENS, one.prompt_tokens)
        free_at[chosen] = begin + computed / PACE.prefill
    assert next(remaining, None) is None
    return Steps(**sums), tier_hits, work, waits


def run(workload: Workload, place: Place, replicas: int, capacity: int) -> Outcome:
    return replay(
        workload,
        Policy.RECORDED,
        place,
        replicas=replicas,
        capacity=capacity,
        pace=PACE,
        tiers=TIERS,
    )


@given(
    workload=workloads(),
    policy=st.sampled_from(PLACED),
    replicas=st.integers(1, 4),
    capacity=st.integers(1, 12),
)
def test_a_replay_counts_what_plain_loops_count(
    workload: Workload, policy: Policy, replicas: int, capacity: int
) -> None:
    place = Noted(placing(policy, 2))
    found = run(workload, place, replicas, capacity)
    steps, tier_hits, work, waits = ref_replay(workload, place.choices, replicas, capacity)
    assert found.steps == steps
    assert list(found.tiers) == list(zip(TIERS, tier_hits, strict=True))
    assert list(found.work) == work
    assert found.saved_tokens == BLOCK_TOKENS * steps.own
    assert found.queue_seconds_p50 == sorted(waits)[(len(waits) + 1) // 2 - 1]
    assert found.queue_seconds_p99 == max(waits)  # of at most 40
    if sum(work):
        assert found.imbalance == max(work) * replicas / sum(work)
    else:
        assert found.imbalance is None
    own, best, anywhere, seen, asked = found.steps
    assert own <= best <= anywhere <= seen <= asked


@given(workload=workloads(), capacity=st.integers(1, 12))
def test_one_replica_finds_the_same_under_every_policy(workload: Workload, capacity: int) -> None:
    found = {run(workload, placing(policy, 2), 1, capacity).steps for policy in PLACED}
    assert len(found) == 1


@given(workload=workloads(), replicas=st.integers(1, 4))
def test_the_load_is_that_of_requests_that_have_not_ended(
    workload: Workload, replicas: int
) -> None:
    running: list[tuple[float, int, int]] = []
    free_at = [0.0] * replicas

    def checked(request: Request, fleet: Sequence[Replica]) -> int:
        for number, replica in enumerate(fleet):
            open_blocks = [b for end, at, b in running if at == number and end > request.at]
            assert replica.outstanding == sum(open_blocks)
        chosen = min(range(replicas), key=lambda at: fleet[at].outstanding)
        found = fleet[chosen].prefix(request.names) * BLOCK_TOKENS
        begin = max(request.at, free_at[chosen])
        free_at[chosen] = begin + (request.prompt_tokens - found) / PACE.prefill
        end = free_at[chosen] + request.output_tokens / PACE.decode
        running.append((end, chosen, len(request.names)))
        return chosen

    alone = [request._replace(call=None) for request in workload.requests]
    run(Workload(kind="trace", requests=alone, block_tokens=BLOCK_TOKENS), checked, replicas, 5)


def choices_of(policy: Policy, requests: Sequence[Request], replicas: int = 3) -> list[int]:
    place = Noted(placing(policy, 2))
    workload = Workload(kind="trace", requests=requests, block_tokens=BLOCK_TOKENS)
    run(workload, place, replicas, 100)
    return place.choices


def test_round_robin_takes_turns() -> None:
    assert choices_of(Policy.ROUND_ROBIN, [request([1])] * 7) == [0, 1, 2, 0, 1, 2, 0]


def test_look_ups_of_one_call_go_to_one_replica() -> None:
    calls = [request([1], call=call) for call in ("a", "b", "a", "b", "c", "a")]
    assert choices_of(Policy.ROUND_ROBIN, calls) == [0, 1, 2]


def test_least_loaded_avoids_whoever_has_a_long_request() -> None:
    long, short = list(range(100, 140)), [1]
    requests = [request(long), *[request(short)] * 6, request(short, at=1000.0)]
    chosen = choices_of(Policy.LEAST_LOADED, requests)
    assert chosen[0] == 0
    assert 0 not in chosen[1:7]
    assert sorted(chosen[1:7]) == [1, 1, 1, 2, 2, 2]
    assert chosen[7] == 7 % 3, "all have ended: the turn decides"


def test_kv_aware_goes_where_the_prompt_is_until_that_replica_is_too_busy() -> None:
    long = list(range(100, 140))
    apart = [request(long), request(long, at=1000.0), request(long, at=2000.0)]
    assert len(set(choices_of(Policy.KV_AWARE, apart))) == 1
    half = request([*long[:20], *range(200, 220)])
    assert (20 / 40) - LOAD_WEIGHT * 1 <= 0
    first, second = choices_of(Policy.KV_AWARE, [request(long), half])
    assert first != second, "half of it does not outweigh a busy replica"


def test_prefix_hash_depends_on_the_first_blocks_alone() -> None:
    same = [request([1, 2, 10 + tail]) for tail in range(20)]
    assert len(set(choices_of(Policy.PREFIX_HASH, same))) == 1
    other = [request([1, second]) for second in range(2, 40)]
    assert set(choices_of(Policy.PREFIX_HASH, other)) == {0, 1, 2}
    nothing = [request([], prompt_tokens=3)] * 3
    assert choices_of(Policy.PREFIX_HASH, nothing) == [0, 1, 2]


def test_a_hash_is_the_same_in_every_process() -> None:
    requests = [request([number]) for number in range(8)]
    assert choices_of(Policy.PREFIX_HASH, requests) == [0, 0, 0, 2, 2, 0, 1, 2]


def test_a_session_stays_where_it_is() -> None:
    requests = [request([number], session=f"s{number % 5}") for number in range(50)]
    chosen = choices_of(Policy.SESSION, requests)
    assert chosen == chosen[:5] * 10
    assert len(set(chosen)) > 1


def test_blocks_that_a_request_generated_are_found_by_the_next_turn() -> None:
    turns = [request([1, 2], further=[3, 4]), request([1, 2, 3, 4, 5])]
    workload = Workload(kind="recordings", requests=turns, block_tokens=BLOCK_TOKENS)
    assert run(workload, placing(Policy.ROUND_ROBIN, 2), 1, 100).steps.own == 4


def test_duplicates_are_the_share_of_blocks_that_are_surplus_copies() -> None:
    requests = [request([1, 2]), request([1, 2]), request([3, 4])]
    workload = Workload(kind="trace", requests=requests, block_tokens=BLOCK_TOKENS)
    found = run(workload, placing(Policy.ROUND_ROBIN, 2), 3, 100)
    assert found.duplicates == pytest.approx(1 - 4 / 6)
