"""Messages that others cause are logged once a minute, for each kind, in bounded memory."""

import asyncio
import logging

import pytest

from kvscope_events.throttle import MAX_KEYS, MINUTE_NS, Throttle, ThrottledLog
from kvscope_exporter.web.quiet import quieten


class Hand:
    """A clock that is moved by hand."""

    now_ns = 7

    def __call__(self) -> int:
        return self.now_ns


def test_each_key_is_allowed_once_a_minute() -> None:
    clock = Hand()
    throttle = Throttle(clock)
    assert [throttle.allow(kind) for kind in ("a", "a", "b")] == [True, False, True]
    clock.now_ns += MINUTE_NS - 1
    assert not throttle.allow("a")
    clock.now_ns += 1
    assert throttle.allow("a")
    assert not throttle.allow("a")


def test_what_was_refused_is_counted_until_the_key_is_allowed_again() -> None:
    clock = Hand()
    throttle = Throttle(clock)
    assert [throttle.take(key) for key in ("a", "a", "a", "b")] == [0, None, None, 0]
    clock.now_ns += MINUTE_NS
    assert [throttle.take(key) for key in ("a", "a", "b")] == [2, None, 0]


def test_one_line_for_each_kind_and_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Hand()
    limit = ThrottledLog(logging.getLogger("test"), clock)
    for number in range(5):
        limit.warning("a", f"message {number}")
    limit.log(logging.ERROR, "b", "other", ValueError("why"))
    clock.now_ns += MINUTE_NS
    limit.warning("a", "again")
    limit.warning("a", "and again")
    assert [record.getMessage() for record in caplog.records] == [
        "message 0",
        "other",
        "again (and 4 times since this was last said)",
    ]
    assert caplog.records[1].exc_info is not None


def test_kinds_without_end_take_no_more_memory() -> None:
    throttle = Throttle(Hand())
    assert all(throttle.allow(str(number)) for number in range(10 * MAX_KEYS))
    assert len(throttle._allowed) <= MAX_KEYS
    assert throttle.allow("0"), "forgotten, and so said again"


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
