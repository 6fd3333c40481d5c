"""What others cause is said once a minute, each kind for itself, in bounded memory."""

import asyncio
import logging

import pytest

from exporter.seldom import LOG_EVERY_NS, MAX_KINDS, Seldom
from exporter.web.quiet import quieten


class Hand:
    """A clock that is moved by hand."""

    now_ns = 7

    def __call__(self) -> int:
        return self.now_ns


def test_each_kind_is_due_once_a_minute() -> None:
    clock = Hand()
    seldom = Seldom(clock)
    assert [seldom.is_due(kind) for kind in ("a", "a", "b")] == [True, False, True]
    clock.now_ns += LOG_EVERY_NS - 1
    assert not seldom.is_due("a")
    clock.now_ns += 1
    assert seldom.is_due("a")
    assert not seldom.is_due("a")


def test_kinds_without_end_take_no_more_memory() -> None:
    seldom = Seldom(Hand())
    assert all(seldom.is_due(str(number)) for number in range(10 * MAX_KINDS))
    assert len(seldom._said_ns) <= MAX_KINDS
    assert seldom.is_due("0"), "forgotten, and so said again"


def test_what_uvicorn_says_again_and_again_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quieten()
    quieten()
    log = logging.getLogger("uvicorn.error")
    message = "Invalid thing of a test received: %d"
    for number in range(3):
        log.warning(message, number)
    cancelled = asyncio.CancelledError()
    log.error("the server stops", exc_info=cancelled)
    assert [record.message for record in caplog.records] == ["Invalid thing of a test received: 0"]


def test_what_an_event_loop_reports_again_and_again_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.new_event_loop()
    try:
        quieten()
        for problem in (OSError("first"), OSError("second"), ValueError("another")):
            loop.call_exception_handler({"message": "accept() of a test", "exception": problem})
    finally:
        loop.close()
    assert len(caplog.records) == 2
    assert caplog.records[0].message == "accept() of a test: first"
