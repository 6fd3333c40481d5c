"""Conversations that make the chat template slow, large or fail."""

from tests.chaos.checkpoint import TRAPS
from tests.chaos.target import Target, chat

_PATH = "/v1/chat/completions"


def _spring(target: Target, *traps: str) -> None:
    assert set(traps) <= set(TRAPS)
    while True:
        for trap in traps:
            if target.over:
                return
            target.post(_PATH, chat(trap, max_tokens=1))
            target.wait(0.02)


def slow_templates(target: Target) -> None:
    """Loops and powers that would take minutes."""
    _spring(target, "endless", "nested", "power")


def large_templates(target: Target) -> None:
    """A text of gigabytes, made and measured."""
    _spring(target, "large")


def failing_templates(target: Target) -> None:
    """Errors of every kind, many a second."""
    _spring(target, "type", "division", "include", "raised")
