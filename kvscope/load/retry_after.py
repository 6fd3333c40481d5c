"""The Retry-After header: seconds or a date, from a server that may write anything into it."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_RETRY_SECONDS = 30.0
"""Longest wait before a retry, whatever the server asks for."""
_MAX_CHARACTERS = 64
"""A date has 29; the library's parser is not made for long text."""


def retry_after(header: str) -> float | None:
    """Seconds from now, from 0 to MAX_RETRY_SECONDS; None where it is neither of the two."""
    if len(header) > _MAX_CHARACTERS:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            # HTTP dates are UTC; one that ends in -0000 is parsed without a zone.
            moment = parsedate_to_datetime(header)
            left = moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)
        except (ValueError, TypeError, IndexError, OverflowError):  # of years and zones, too
            return None
        seconds = max(0.0, left.total_seconds())  # a date that has passed means now
    if not math.isfinite(seconds) or seconds < 0:
        return None
    return min(MAX_RETRY_SECONDS, seconds)
