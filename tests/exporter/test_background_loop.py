"""A loop in the background goes on after an exception of its work, and ends on request."""

import logging

import pytest

from kvscope_exporter.clock import BackgroundLoop
from tests.support.waiting import wait_for


def test_a_bug_is_logged_once_a_minute_and_the_loop_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("planted by the test")

    loop = BackgroundLoop("kvscope-test", 0.001, work)
    with caplog.at_level(logging.ERROR, logger="kvscope_exporter.clock"):
        loop.start()
        wait_for(lambda: calls > 3, "it is called again")
        loop.stop()
    assert not loop.is_running
    assert [record.message for record in caplog.records] == ["kvscope-test: a bug; it goes on"]
