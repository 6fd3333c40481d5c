"""A peer's impossible values are absent from the page and reported, in one line."""

import logging
import sys

import pytest

from kvscope.output import MAX_MESSAGE, LineFormatter
from kvscope_events.events import (
    BlocksAllocated,
    EngineEvent,
    ObserverStopped,
    PoolCreated,
    PoolSnapshot,
    RequestResumed,
)
from kvscope_events.observers.vllm.snapshot import Counts, State
from kvscope_events.printable import printable
from kvscope_exporter.catalogue import CATALOGUE, metric
from kvscope_exporter.state import HelloTracker, Ledger
from tests.exporter.page import HELLO, families, make_exporter, put, value
from tests.exporter.scenario import play
from tests.exporter.stream import batch_of, step

POOL = PoolCreated(9, 16, 0, 1)


def test_our_own_page_shows_nothing_that_cannot_be() -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    of_family = {row.family: row for row in CATALOGUE}
    for name, family in families(exporter).items():
        row = of_family[name]
        if row.kind in ("gauge", "counter"):
            assert all(row.can_be(sample.value) for sample in family.samples), name


@pytest.mark.parametrize(
    ("name", "possible", "impossible"),
    [
        ("kvscope_kv_active_ratio", (0.0, 1.0), (-0.5, 1.01, float("nan"))),
        ("kvscope_kv_blocks", (0.0, 7.0), (-1.0, float("inf"))),
        ("kvscope_kv_block_size_tokens", (1.0,), (0.0,)),
        ("kvscope_gpu_memory_headroom_bytes", (-1.0, 0.0), (float("-inf"),)),
        ("kvscope_gpu_temperature_celsius", (-3.0,), ()),
    ],
)
def test_the_catalogue_bounds_values_by_kind_and_unit(
    name: str, possible: tuple[float, ...], impossible: tuple[float, ...]
) -> None:
    row = metric(name)
    assert all(map(row.can_be, possible))
    assert not any(map(row.can_be, impossible))


@pytest.mark.parametrize(
    ("events", "absent"),
    [
        ((PoolCreated(9, 16, 0, 1, {"weights": -5, "total": 9}),), "kvscope_kv_pool_sizing_bytes"),
        ((POOL, RequestResumed(4, 4, 1, 1, 9), step(waiting=0)), "kvscope_requests"),
    ],
    ids=["a negative term", "resumed, never preempted"],
)
def test_events_that_contradict_each_other_make_no_negative_number(
    events: tuple[EngineEvent, ...], absent: str, caplog: pytest.LogCaptureFixture
) -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 10**18, HELLO, *events)
    shown = families(exporter)
    for name, family in shown.items():
        if name != "kvscope_gpu_memory_headroom_bytes":
            assert all(sample.value >= 0 for sample in family.samples), name
    if absent in shown:
        assert len(shown[absent].samples) < 4


def test_more_slots_filled_than_the_blocks_have_is_an_imbalance() -> None:
    ledger = Ledger()
    filled = step(active_blocks=1, free_blocks=7, slots_filled=10**9)
    ledger.on_batch(batch_of(POOL, BlocksAllocated(1, [1], "decode"), filled))
    assert ledger.imbalance == 1


def test_a_vllms_snapshot_tells_its_largest_step_and_no_swap_space() -> None:
    snapshot = State([0, 1], [None, None], [], Counts(1)).event(PoolCreated(2, 16, 0, 1), 512)
    assert isinstance(snapshot, PoolSnapshot)
    assert (snapshot.largest_step, snapshot.swap_blocks, snapshot.swap_used) == (512, 0, 0)


def logged(text: str) -> str:
    record = logging.LogRecord("peer", logging.WARNING, "", 0, "it says %s", (text,), None)
    return LineFormatter().format(record)


@pytest.mark.parametrize("text", ["v\n19:00:00 ERROR forged", "\x1b[2J", "\r\x00\u202e"])
def test_a_text_of_a_peer_forges_no_line_of_the_log(text: str) -> None:
    line = logged(text)
    assert line.isprintable()
    assert line.endswith("it says " + printable(text, keep=""))


def test_a_line_of_the_log_is_bounded() -> None:
    assert len(logged("x" * 2_000_000)) < MAX_MESSAGE + 100


def test_a_traceback_keeps_its_lines_and_loses_escapes() -> None:
    try:
        raise ValueError("\x1b[31mred")
    except ValueError:
        record = logging.LogRecord("us", logging.ERROR, "", 0, "a bug", (), sys.exc_info())
    text = LineFormatter().format(record)
    assert "\x1b" not in text
    assert text.splitlines()[-1] == r"ValueError: \x1b[31mred"


def test_the_reason_of_an_observer_that_stopped_is_bounded() -> None:
    introduction = HelloTracker()
    introduction.on_batch(batch_of(HELLO, ObserverStopped("x" * 2_000_000)))
    assert introduction.stopped == "x" * 512


def test_a_value_that_cannot_be_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 10**18, HELLO, POOL)
    assert value(exporter, "kvscope_kv_active_ratio") == 0
    target = exporter.targets[0]
    target.folds[Ledger].blocks.num_active = -3
    for _ in range(2):
        assert value(exporter, "kvscope_kv_active_ratio") is None
    reports = [
        r.getMessage() for r in caplog.records if "kvscope_kv_active_ratio" in r.getMessage()
    ]
    assert len(reports) == 1
    assert "cannot be -0.375" in reports[0]
