"""Headers and bodies as servers really send them."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from engine.workload.client import (
    DEFAULT_RETRY_SECONDS,
    MAX_RETRY_SECONDS,
    error_detail,
    retry_seconds,
)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, DEFAULT_RETRY_SECONDS),
        ("3", 3.0),
        ("0.25", 0.25),
        ("-1", 0.0),
        ("nan", 0.0),
        ("86400", MAX_RETRY_SECONDS),
        ("soon", DEFAULT_RETRY_SECONDS),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 -0000", 0.0),
    ],
)
def test_retry_after(header: str | None, seconds: float) -> None:
    assert retry_seconds(header) == seconds


def test_retry_after_a_date() -> None:
    moment = datetime.now(UTC) + timedelta(seconds=10)
    assert retry_seconds(format_datetime(moment, usegmt=True)) == pytest.approx(10, abs=2)


def test_error_detail_is_the_message_or_the_body() -> None:
    assert error_detail(b'{"error": {"message": "too long"}}') == "too long"
    assert error_detail(b"<html>bad gateway</html>") == "<html>bad gateway</html>"
