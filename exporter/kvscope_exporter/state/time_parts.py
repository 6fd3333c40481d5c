"""The parts of a request's time, lists of nanoseconds in the order of PARTS, and the account of one
request in them."""

from operator import add
from typing import Literal, get_args

Part = Literal[
    "wait_sequences",
    "wait_blocks",
    "wait_tokens",
    "wait_transfer",
    "wait_unexplained",
    "wait_step",
    "preempted",
    "prefill_own",
    "prefill_again",
    "prefill_others",
    "decode",
    "decode_prefills",
    "slow",
    "host",
    "unknown",
]
PARTS: tuple[Part, ...] = get_args(Part)
_AFTER: tuple[Part, ...] = (
    *("preempted", "prefill_again", "prefill_others", "decode", "decode_prefills"),
    *("slow", "host", "unknown"),
)
_ONLY_AFTER = ("decode", "decode_prefills")
QUEUED: tuple[Part, ...] = (*PARTS[: PARTS.index("preempted")], "unknown")
"""The parts of the time in the queue."""
PARTS_OF: dict[str, tuple[Part, ...]] = {
    "first_token": tuple(part for part in PARTS if part not in _ONLY_AFTER),
    "rest": _AFTER,
}
"""The parts that time can have up to the first token, and after it."""
NONE: list[int] = [0] * len(PARTS)
LATE_SECONDS = 2.5
"""A first token after this, or none at all, is late. The default of the objective for first
tokens, so that what is late here is what alerts count."""
SLOW_TOKEN_SECONDS = 0.5
"""A further token after this is late; the default of the objective for them."""


class Account:
    """The time of one request; it is a note on the request itself."""

    __slots__ = (
        *("first_ns", "is_closed", "mark", "parts", "queue", "queue_ns", "recompute", "state"),
        "tenant",
    )

    def __init__(self, tenant: str, state: int, mark: list[int]) -> None:
        """mark: the clock of its state at this moment."""
        self.tenant = tenant
        self.state = state
        self.mark = mark
        self.parts = NONE.copy()
        """Nanoseconds of the present phase: in the queue, to the first token, after it."""
        self.queue = NONE
        """Those of the queue, once it has left it, and their sum."""
        self.queue_ns = 0
        self.recompute = 0
        """Tokens that it had before a preemption and has to compute again."""
        self.first_ns: int | None = None
        """Duration to the first token; None: it has none."""
        self.is_closed = False
        """Whether the request has ended and its time is counted."""


def add_parts(sums: list[int], parts: list[int]) -> None:
    sums[:] = map(add, sums, parts)


def settle_parts(parts: list[int], length: int, edge: int) -> None:
    """Make them add up to the length, none below 0: what is missing goes to the edge, what is too
    much is taken from it, then from the largest."""
    parts[edge] += length - sum(parts)
    if min(parts) >= 0:
        return
    lacking = -sum(part for part in parts if part < 0)
    parts[:] = [max(0, part) for part in parts]
    while lacking:
        largest = max(range(len(parts)), key=parts.__getitem__)
        taken = min(lacking, parts[largest])
        parts[largest] -= taken
        lacking -= taken
