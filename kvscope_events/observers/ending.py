"""The end of a scheduler's observer: the last events of its stream, and the words of last resort.

Those of vLLM and of SGLang end in the same way.
"""

import sys

import msgspec

from kvscope_events.events import EngineEvent, Hello, ObserverStopped
from kvscope_events.limits import label_of

BY_ORDER = "an operator switched it off: `kvscope observer on` continues it"
MAX_REASON = 400


def stopped(hello: Hello, reason: str) -> list[EngineEvent]:
    """The state of an observer that has ended, for readers that come later.

    The last event is the one that all others get.
    """
    without_pool = msgspec.structs.replace(hello, tells=["Hello", "ObserverStopped"])
    return [without_pool, ObserverStopped(label_of(reason, MAX_REASON))]


def last_words(error: BaseException) -> None:
    """Say that even the end has failed, where no log can be relied on. Never raises."""
    try:
        print(f"kvscope: off: {error!r}", file=sys.stderr)
    except Exception:  # stderr is gone, or the error cannot be printed
        return
