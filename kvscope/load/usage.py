"""The server's count of a reply's tokens, believed only as far as it can be true."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from kvscope.load.doubts import Doubt

MAX_PROMPT_TOKENS = 1 << 24
"""Longer than any context."""
_MOST_SHOWN = 10**20
"""Longer numbers are named, not shown: Python refuses to write those of thousands of digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """None: not reported, or not believed."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


def read_usage(reported: Mapping[str, object], max_tokens: int | None, doubt: Doubt) -> Usage:
    """max_tokens: what the request asked for. `doubt` is told each number that cannot be true."""

    def count(name: str, value: object, limit: int | None, bound: str) -> int | None:
        if value is None:
            return None
        if is_count(value) and (limit is None or value <= limit):
            return value
        doubt(name, f"{shown(value)}{bound if is_count(value) else ''}")
        return None

    prompt = count(
        "prompt_tokens", reported.get("prompt_tokens"), MAX_PROMPT_TOKENS, ", more than any context"
    )
    output = count(
        "completion_tokens",
        reported.get("completion_tokens"),
        MAX_PROMPT_TOKENS if max_tokens is None else max_tokens,
        ", more than were asked for",
    )
    details = reported.get("prompt_tokens_details")
    cached = None
    if isinstance(details, dict):
        cached = count(
            "cached_tokens",
            details.get("cached_tokens"),
            prompt,
            f" of {prompt} prompt tokens",
        )
    return Usage(prompt_tokens=prompt, output_tokens=output, cached_tokens=cached)


def is_count(value: object) -> TypeGuard[int]:
    """A whole number from 0 on; `true` is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def shown(value: object) -> str:
    """A value of the server's JSON for a message, in few characters."""
    if isinstance(value, int) and abs(value) >= _MOST_SHOWN:
        return "of more than 20 digits"
    return str(value) if isinstance(value, int | float) else f"of type {type(value).__name__}"
