"""What repeats is said once a minute, with the number of times in between."""

import logging

import pytest

from engine import log_limit
from engine.log_limit import PERIOD_SECONDS, LogLimit


def test_one_line_for_each_kind_and_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(log_limit.time, "monotonic", lambda: now)
    limit = LogLimit(logging.getLogger("test"))
    for number in range(5):
        limit.warning("a", f"message {number}")
    limit.log(logging.ERROR, "b", "other", ValueError("why"))
    now += PERIOD_SECONDS
    limit.warning("a", "again")
    limit.warning("a", "and again")
    assert [record.getMessage() for record in caplog.records] == [
        "message 0",
        "other",
        "again (and 4 times since this was last said)",
    ]
    assert caplog.records[1].exc_info is not None
