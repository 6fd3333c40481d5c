"""Conversations that make the chat template slow, large or fail."""

import threading

from tools.chaos.checkpoint import TRAPS
from tools.chaos.target import NotHeldError, Target, chat

_PATH = "/v1/chat/completions"
_CLIENTS = 3


def _spring(target: Target, *traps: str) -> None:
    """The traps in turn, from several clients. Raises NotHeldError where chats are not served."""
    assert set(traps) <= set(TRAPS)
    status = target.post(_PATH, chat("hello", max_tokens=1))
    if status not in (200, 0):
        raise NotHeldError(f"a chat was answered {status}")

    def repeat() -> None:
        while True:
            for trap in traps:
                if target.over:
                    return
                target.post(_PATH, chat(trap, max_tokens=1))
                target.wait(0.05)

    threads = [threading.Thread(target=repeat) for _ in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def slow_templates(target: Target) -> None:
    """Loops and powers that would take minutes."""
    _spring(target, "endless", "nested", "power")


def large_templates(target: Target) -> None:
    """Texts of gigabytes, and of as much as may just be allowed, made and measured."""
    _spring(target, "large", "heavy")


def failing_templates(target: Target) -> None:
    """Errors of every kind, many a second."""
    _spring(target, "type", "division", "include", "raised")
