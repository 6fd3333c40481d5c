"""Headers and bodies as servers really send them."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from kvscope.load.client import DEFAULT_RETRY_SECONDS, retry_seconds
from kvscope.load.doubts import Doubts
from kvscope.load.refusal import error_detail
from kvscope.load.retry_after import MAX_RETRY_SECONDS


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, DEFAULT_RETRY_SECONDS),
        ("3", 3.0),
        ("0.25", 0.25),
        ("-1", DEFAULT_RETRY_SECONDS),
        ("nan", DEFAULT_RETRY_SECONDS),
        ("inf", DEFAULT_RETRY_SECONDS),
        ("9" * 400, DEFAULT_RETRY_SECONDS),
        ("9" * 50, MAX_RETRY_SECONDS),
        ("1e9", MAX_RETRY_SECONDS),
        ("Thu, 01 Jan 99999999999999999999 00:00:00 GMT", DEFAULT_RETRY_SECONDS),
        ("Thu, 01 Jan 2026 00:00:00 +99999999999999999999", DEFAULT_RETRY_SECONDS),
        ("Fri, 31 Dec 9999 23:59:59 -9999", DEFAULT_RETRY_SECONDS),
        ("86400", MAX_RETRY_SECONDS),
        ("soon", DEFAULT_RETRY_SECONDS),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 -0000", 0.0),
    ],
)
def test_retry_after(header: str | None, seconds: float) -> None:
    assert retry_seconds(header) == seconds


def test_a_retry_after_that_cannot_be_read_is_reported_once() -> None:
    doubts = Doubts()
    for _ in range(3):
        assert retry_seconds("Thu, 01 Jan 99999999999999999999 00:00:00 GMT", doubts) == 1
    (note,) = doubts.notes
    assert note.startswith("Retry-After cannot be true and is not counted, in 3 answer(s): ")


def test_retry_after_a_date() -> None:
    moment = datetime.now(UTC) + timedelta(seconds=10)
    assert retry_seconds(format_datetime(moment, usegmt=True)) == pytest.approx(10, abs=2)


def test_error_detail_is_the_message_or_the_body() -> None:
    assert error_detail(b'{"error": {"message": "too long"}}') == "too long"
    assert error_detail(b"<html>bad gateway</html>") == "<html>bad gateway</html>"


def test_error_detail_cannot_steer_the_terminal_nor_fill_it() -> None:
    detail = error_detail(b'{"error": {"message": "no\\u001b[2J\\nroom"}}')
    assert detail == r"no\x1b[2J room"
    assert len(error_detail(b"x" * 100_000)) == 200
    assert error_detail(b"[" * 100_000).startswith("[[[")
