"""An SGLang is advised in its own options, by what its observer reports of it."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.bus import Subscription
from kvscope_events.events import PoolCounted, PoolCreated
from kvscope_events.producers import CONTENT_EVENTS, SGLANG_EVENTS, in_order
from kvscope_exporter.adviser.facts import Facts, Sizing
from kvscope_exporter.adviser.proposal import OPTIONS, Option, Proposal
from kvscope_exporter.adviser.rank import advise
from kvscope_exporter.answers.advice import ADVICE
from kvscope_exporter.answers.gather import gather
from kvscope_exporter.answers.question import Question
from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.host_memory import Available, HostMemory
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.sources.pipeline import InProcessSource
from kvscope_exporter.targets.reply import memory_of
from kvscope_exporter.targets.target import Target
from tests.exporter.advised import SECOND, any_facts, curve, facts, needed, room, slot
from tests.exporter.machine import GIB, NOW_NS
from tests.exporter.page import put
from tests.exporter.stream import ended, hello, step

MIB = 1 << 20
OWN = {
    *("mem_fraction_static", "max_total_tokens", "max_running_requests", "chunked_prefill_size"),
    *("page_size", "schedule_conservativeness", "hicache_size"),
}
OTHERS = set(OPTIONS) - OWN - {"replicas"}
_FLAG = re.compile(r"--[a-z-]+")
FACTS: Question[Facts] = Question(
    name="facts", summary="", events=(), folds=ADVICE.folds, read=gather
)
RETRACTING = slot(
    preemptions={"out_of_blocks": 90},
    recomputed_tokens={"out_of_blocks": 60_000},
    need_ns=needed({0.6: 100 * SECOND, 1.2: 50 * SECOND}),
    output_tokens=90_000,
    max_tokens=1_000_000,
)


def sglang(**changes: Any) -> Facts:
    """Its pool has as many tokens as --max-total-tokens allows."""
    fields: dict[str, Any] = {
        "server": "sglang",
        "pool_option": "max_total_tokens",
        "knows_unfilled": False,
        "conservativeness": 0.3,
    }
    return facts(**{**fields, **changes})


def proposed(given: Facts) -> dict[str, Proposal]:
    return {proposal.option: proposal for proposal in advise(given).proposals}


def declined(given: Facts, kind: str) -> str:
    (reason,) = (one.reason for one in advise(given).declined if one.reason.startswith(kind))
    return reason


def test_a_larger_pool_is_proposed_in_tokens() -> None:
    found = proposed(sglang(curve=curve(0.2, 0.9)))["max_total_tokens"]
    assert found.flag == "--max-total-tokens"
    assert (found.current, found.proposed) == (16_000, 34_992), "of 1,000 pages and 2,187"
    assert any("--mem-fraction-static leaves room" in sentence for sentence in found.assumes)


def test_a_larger_share_is_proposed_where_a_share_gave_the_pool_its_size() -> None:
    sizing = Sizing(total_bytes=20 * GIB, utilization=0.7, in_use_at_start_bytes=0)
    shared = sglang(curve=curve(0.2, 0.9), pool_option="mem_fraction_static", sizing=sizing)
    found = proposed(shared)["mem_fraction_static"]
    assert found.text.startswith("--mem-fraction-static 0.70 → 0.81: ")
    assert found.price.pool_blocks == int((found.proposed - 0.7) * 20 * GIB / (2 * MIB))


def test_a_limit_that_was_not_set_is_no_way_to_a_larger_pool() -> None:
    given = sglang(curve=curve(0.2, 0.9, least=0), is_option_set=False)
    assert "max_total_tokens" not in proposed(given)
    assert "would save about 1,493 prompt tokens a second" in declined(given, "a larger pool")
    assert "--mem-fraction-static" in declined(given, "a larger pool")


def test_admission_is_to_expect_what_requests_use_of_their_max_tokens() -> None:
    """0.3 lets the estimate fall to 2.9 %, 1.0 to 9.8 %, and requests use 9 %."""
    advice = proposed(sglang(load=RETRACTING))["schedule_conservativeness"]
    assert (advice.current, advice.proposed) == (0.3, 1.0)
    assert advice.gain.recomputed_tokens_per_second_from == 200
    assert advice.gain.recomputed_tokens_per_second_to is None, "not known"
    assert advice.text == (
        "--schedule-conservativeness 0.3 → 1.0: fewer recomputed tokens (200 a second now)"
    )
    assert "2.9 % of their max_tokens, and they use 9.0 %" in advice.why
    long = replace(RETRACTING, output_tokens=900_000)
    most = proposed(sglang(load=long))["schedule_conservativeness"]
    assert most.proposed == 1.4, "more changes nothing"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"load": slot()}, "0 of 2,000 prompt tokens a second are computed again"),
        ({"conservativeness": None}, "is not reported"),
        ({"conservativeness": 1.0}, "or the 9 % of their max_tokens that requests use"),
        ({"conservativeness": 1.5, "load": replace(RETRACTING, output_tokens=900_000)}, "as much"),
        ({"load": replace(RETRACTING, max_tokens=0)}, "how long replies are is not known"),
        ({"seconds": 20.0}, "less than 30 s"),
    ],
)
def test_otherwise_it_says_why_admission_stays(changes: dict[str, Any], reason: str) -> None:
    given = sglang(**{"load": RETRACTING, **changes})
    assert "schedule_conservativeness" not in proposed(given)
    assert reason in declined(given, "more conservative admission")


def test_a_host_tier_is_hicache_in_whole_gigabytes() -> None:
    host = room(name="host", total_bytes=80 * GIB, free_bytes=64 * GIB, largest_step_bytes=0)
    found = proposed(
        sglang(curve=curve(0.6, 0.9), rooms=[room(free_bytes=GIB)], can_offload=True, host=host)
    )["hicache_size"]
    assert found.text.startswith("set --enable-hierarchical-cache --hicache-size 9: ")
    assert found.proposed == 9, "4,000 blocks of 2 MiB are 8.4 GB"
    assert any("--hicache-write-policy" in sentence for sentence in found.assumes)


def test_slots_that_nobody_counts_are_not_all_written() -> None:
    assert "is not reported" in declined(sglang(block_size=64), "smaller blocks")


def test_a_vllm_is_told_nothing_of_sglangs_levers() -> None:
    found = advise(facts(load=RETRACTING))
    assert not any("conservative" in one.reason for one in found.declined)
    assert not any("retraction" in one.reason for one in found.declined)


@given(any_facts, st.sampled_from([None, 0.3, 1.0, 2.0]), st.booleans())
def test_sglang_is_advised_in_its_own_options_only(
    given: Facts, conservativeness: float | None, is_reported: bool
) -> None:
    option: Option = "max_total_tokens" if given.sizing is None else "mem_fraction_static"
    host = room(name="host", largest_step_bytes=0)
    found = advise(
        replace(
            given,
            server="sglang",
            pool_option=option,
            conservativeness=conservativeness,
            knows_unfilled=is_reported,
            can_offload=True,
            host=host,
        )
    )
    foreign = {f"--{name.replace('_', '-')}" for name in OTHERS}
    for one in found.proposals:
        assert one.option in {*OWN, "replicas"}
        said = " ".join((one.text, one.flag, one.why, one.because, one.price.text, *one.assumes))
        assert not foreign & set(_FLAG.findall(said))
        assert "vLLM" not in said
    for reason in (one.reason for one in found.declined):
        assert not foreign & set(_FLAG.findall(reason))
        assert "watermark" not in reason


def facts_of(machine: Machine, **changes: Any) -> Facts:
    """Gathered of an SGLang with 100 pages of 16 tokens, after its first step."""
    introduction = hello(
        server="sglang",
        tells=in_order(SGLANG_EVENTS | CONTENT_EVENTS),
        **{"gpu_memory_utilization": None, **changes},
    )
    subscription = Subscription(8)
    put(subscription, 0, NOW_NS, introduction, PoolCreated(100, 16, MIB))
    put(
        *(subscription, 1, NOW_NS, PoolCounted(100, 16, MIB, 0, 0, 0, 0, None)),
        *(ended(1), ended(2, reason="abort"), ended(3, reason="length", output_tokens=64)),
        step(free_blocks=100),
    )
    target = Target(InProcessSource(subscription), compat=(), clock=Clock())
    return target.answer(FACTS, machine, memory_of([target]))


def on_host(_pid: int) -> HostMemory:
    return HostMemory(resident=GIB, limit=8 * GIB, usage=6 * GIB, unreclaimable=4 * GIB)


def test_the_server_is_known_by_its_hello() -> None:
    settings = {"schedule_conservativeness": 0.1, "max_running_requests": 6.0}
    machine = Machine(host=on_host, available=lambda: Available(64 * GIB, 30 * GIB))
    found = facts_of(
        machine, pool_sized_by="max_total_tokens", settings=settings, pool_device="cpu"
    )
    assert (found.server, found.pool_option) == ("sglang", "max_total_tokens")
    assert found.is_option_set
    assert found.conservativeness == 0.1
    assert found.max_num_seqs == 6
    assert not found.knows_unfilled
    assert not found.can_offload, "its pool is in the host's memory already"
    assert [room.name for room in found.rooms] == ["host"]
    assert found.load is not None
    assert (found.load.output_tokens, found.load.max_tokens) == (69, 128), "without the aborted"


def test_the_share_is_one_of_what_was_free_before_the_model() -> None:
    found = facts_of(
        Machine(),
        pool_sized_by="mem_fraction_static",
        gpu_memory_utilization=0.8,
        settings={"pre_model_load_memory": 20.0},
        pool_device="cuda",
    )
    assert found.pool_option == "mem_fraction_static"
    assert found.sizing == Sizing(total_bytes=20 * GIB, utilization=0.8, in_use_at_start_bytes=0)
    assert found.can_offload
    assert found.rooms == (), "how much its device has left is not known"


def test_an_older_observer_reports_no_settings() -> None:
    found = facts_of(Machine(), pool_sized_by="mem_fraction_static", gpu_memory_utilization=0.8)
    assert (found.pool_option, found.is_option_set) == ("max_total_tokens", False)
    assert found.conservativeness is None
