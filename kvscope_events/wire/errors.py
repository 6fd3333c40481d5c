"""Errors of the wire: endpoints that cannot be used, frames that cannot be read."""

from typing import Literal, get_args

DecodeErrorKind = Literal["malformed", "too_large", "contract", "unknown_event", "second_publisher"]

DECODE_ERROR_KINDS: tuple[str, ...] = get_args(DecodeErrorKind)
"""Closed set: malformed (not a frame, or one cut short), too_large, contract (another version),
unknown_event (of a newer producer, left out), second_publisher (frames of a session that ended).
"""


class EndpointError(Exception):
    """An endpoint that cannot be used; says where, what is wrong, and what to do."""

    def __init__(self, endpoint: str, problem: str, remedy: str) -> None:
        super().__init__(f"{endpoint}: {problem}; {remedy}")
        self.endpoint = endpoint
        self.problem = problem
        self.remedy = remedy


class FrameError(Exception):
    """Bytes that are not a frame of this contract."""

    def __init__(self, kind: DecodeErrorKind, problem: str) -> None:
        super().__init__(problem)
        self.kind: DecodeErrorKind = kind
        self.problem = problem
