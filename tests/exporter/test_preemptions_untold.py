"""Unknown facts of a preemption are null in its answer, not 0."""

import msgspec

from kvscope_events.events import PoolCreated, RequestPreempted
from kvscope_exporter.answers.preemptions import PREEMPTIONS
from tests.exporter.page import make_exporter
from tests.exporter.stream import put, step


def test_blocks_that_nobody_told_of_were_taken_by_an_unknown_number_of_sequences() -> None:
    exporter, subscription = make_exporter()
    preempted = RequestPreempted(1, 1, "recompute", "out_of_memory", 9, 2, 0)
    put(subscription, 0, 0, PoolCreated(8, 4, 0), preempted, step())
    reply = msgspec.json.decode(msgspec.json.encode(exporter.answer(PREEMPTIONS)))
    (one,) = reply["engines"][0]["answer"]["preemptions"]
    assert one["taken_by"] is None
    assert one["taken_by_further_blocks"] is None
