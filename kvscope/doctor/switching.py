"""Switches the observer of a running server off and on, by the socket of its events."""

import time

from kvscope.doctor.asking import NoAnswerError, ProcessConnection, UnreachableError
from kvscope_events.observers.switched import SwitchReply
from kvscope_events.wire.frame import FrameKind, RequestKind

PAUSE_SECONDS = 0.05
"""Between two questions: an order is carried out after the step under way."""


def switch(endpoint: str, *, on: bool, seconds: float) -> SwitchReply:
    """Order it, until it is so; returns the last answer, which may be another after `seconds`.

    Raises UnreachableError, EndpointError.
    """
    request = RequestKind.ON if on else RequestKind.OFF
    deadline = time.monotonic() + seconds
    with ProcessConnection(endpoint) as asked:
        while True:
            left = max(PAUSE_SECONDS, deadline - time.monotonic())
            payload = asked.answer(request, FrameKind.SWITCHED, left)
            if payload is None:
                raise NoAnswerError(
                    f"{endpoint}: no answer came in {seconds:g} s: its observer is older than this "
                    "command, or the process hangs"
                )
            if not payload:
                raise UnreachableError(
                    f"{endpoint}: the process has no observer that can be switched while it runs: "
                    "only that of a scheduler can"
                )
            found = SwitchReply.decoded(payload)
            if found.is_final(on=on) or time.monotonic() > deadline:
                return found
            time.sleep(PAUSE_SECONDS)
