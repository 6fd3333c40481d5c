"""`GET /api/preemptions`: the bill and the last preemptions, as they are read by people."""

from typing import Any

import msgspec

from kvscope_events.events import (
    AllocationFailed,
    BlocksAllocated,
    BlocksReleased,
    PoolCreated,
    RequestPreempted,
    RequestResumed,
)
from kvscope_exporter.answers.preemptions import PREEMPTIONS
from kvscope_exporter.answers.questions import QUESTIONS
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.machine import NOW_NS
from tests.exporter.page import hello, make_exporter
from tests.exporter.scenario import play
from tests.exporter.stream import put, step

SECOND_NS = 1_000_000_000


def asked(exporter: Exporter) -> dict[str, Any]:
    """The only engine's reply, as JSON has it."""
    (engine,) = msgspec.json.decode(msgspec.json.encode(exporter.answer(PREEMPTIONS)))["engines"]
    assert (engine["model_name"], engine["engine"]) == ("demo", "0")
    reply: dict[str, Any] = engine
    return reply


def test_a_preemption_is_told_with_its_age_its_cost_and_who_took_the_blocks() -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    answer = asked(exporter)["answer"]
    assert answer["preemptions"] == [
        {
            "time_seconds": (NOW_NS - 1_020_000_000) / 1e9,
            "ago_seconds": 1.02,
            "sequence": 1,
            "request": 1,
            "mode": "recompute",
            "cause": "out_of_blocks",
            "state": "resumed",
            "age_seconds": 0.04,
            "discarded_tokens": 9,
            "found_tokens": 4,
            "loaded_tokens": 0,
            "swapped_tokens": 0,
            "recomputed_tokens": 5,
            "stalled_seconds": 0.06,
            "swap_estimate_seconds": None,
            "recompute_estimate_seconds": None,
            "blocks": 3,
            "kept_blocks": 1,
            "wanted_by": {"sequence": 0, "wanted_blocks": 1, "available_blocks": 0},
            "taken_by": [{"sequence": 0, "blocks": 1}],
            "taken_by_further_blocks": 0,
        }
    ]
    assert answer["bill"][0] == {
        "mode": "recompute",
        "cause": "out_of_blocks",
        "preemptions": 1,
        "discarded_tokens": 9,
        "found_tokens": 4,
        "found_by_tier": {"device": 4},
        "swapped_tokens": 0,
        "recomputed_tokens": 5,
        "abandoned_tokens": 0,
        "lost_tokens": 0,
        "waiting_tokens": 0,
        "stalled_seconds": 0.06,
    }
    assert [line["cause"] for line in answer["bill"]] == ["out_of_blocks", "out_of_memory", "reset"]
    assert answer["computed_tokens"] == 22
    assert answer["recomputed_ratio"] == 5 / 22
    assert (answer["unattributed"], answer["gaps"]) == (None, 0)


def test_of_a_victim_that_waits_nothing_is_said_that_is_not_known_yet() -> None:
    exporter, subscription = make_exporter()
    put(
        subscription,
        *(0, NOW_NS - 5 * SECOND_NS),
        PoolCreated(8, 4, 0),
        AllocationFailed(7, 1, 0),
        BlocksReleased(1, [3], [4], [], "preempted"),
        RequestPreempted(1, 2, "recompute", "out_of_blocks", 9, 2, SECOND_NS),
        BlocksAllocated(7, [4], "decode"),
        step(),
    )
    answer = asked(exporter)["answer"]
    (one,) = answer["preemptions"]
    assert (one["state"], one["ago_seconds"], one["request"]) == ("waiting", 5.0, 2)
    assert one["found_tokens"] is one["recomputed_tokens"] is one["stalled_seconds"] is None
    assert one["kept_blocks"] == 1
    assert answer["bill"][0]["waiting_tokens"] == 9
    assert answer["recomputed_ratio"] is None, "nothing has been computed"


def test_the_newest_is_the_first_and_the_unattributed_are_apart() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(8, 4, 0), RequestResumed(9, 9, 3, 2, SECOND_NS))
    for number in (1, 2):
        event = RequestPreempted(number, number, "recompute", "out_of_memory", 9, 2, 0)
        put(subscription, number, number, event, step(prefill_tokens=6))
    answer = asked(exporter)["answer"]
    assert [one["sequence"] for one in answer["preemptions"]] == [2, 1]
    assert answer["unattributed"] == {
        "found_tokens": 2,
        "swapped_tokens": 0,
        "recomputed_tokens": 3,
        "stalled_seconds": 1.0,
    }
    assert answer["recomputed_ratio"] == 3 / 12
    assert answer["preemptions"][0]["wanted_by"] is None


def test_a_server_that_does_not_tell_of_blocks_has_no_answer_but_a_reason() -> None:
    exporter, subscription = make_exporter()
    told = ["PoolCreated", "RequestPreempted", "StepCompleted"]
    put(subscription, 0, 0, hello(tells=told), PoolCreated(8, 4, 0))
    reply = asked(exporter)
    assert "answer" not in reply
    assert reply["unknown"].startswith("this server does not report AllocationFailed, BlocksAll")


def test_it_can_be_asked_by_name() -> None:
    assert QUESTIONS["preemptions"] is PREEMPTIONS


def test_what_a_tier_supplied_to_a_resumed_sequence_is_apart() -> None:
    exporter, subscription = make_exporter()
    put(
        subscription,
        *(0, 0),
        hello(server="vllm", keeps_blocks=True),
        PoolCreated(8, 4, 0),
        RequestPreempted(1, 1, "recompute", "out_of_blocks", 9, 2, 0),
        RequestResumed(1, 1, 1, 8, SECOND_NS, 0, 6, "host"),
        RequestPreempted(2, 2, "recompute", "out_of_blocks", 9, 2, 0),
        RequestResumed(2, 2, 5, 4, SECOND_NS, 0, 3, None),
        step(),
    )
    answer = asked(exporter)["answer"]
    assert answer["bill"][0]["found_tokens"] == 12
    assert answer["bill"][0]["found_by_tier"] == {"device": 3, "host": 6, "other": 3}
    assert [one["loaded_tokens"] for one in answer["preemptions"]] == [3, 6]
