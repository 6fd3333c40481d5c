"""The requests that are placed on replicas, and what is known of where they come from."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kvscope.traces import Trace
from kvscope.whatif.findings import WhatIfError
from kvscope.whatif.trace import TELL_EVERY


class Request(NamedTuple):
    """One look-up."""

    at: float
    """Seconds; requests are in this order."""
    names: Sequence[int]
    """Blocks that are looked up, first to last; the same number is the same content."""
    prompt_tokens: int
    output_tokens: int
    further: Sequence[int] = ()
    """Blocks that it caches behind them: what a lookup leaves out, and what it generates."""
    session: Hashable | None = None
    """None: not known."""
    call: Hashable | None = None
    """Look-ups of one call go to one replica; None: a call of its own."""
    recorded_on: int = 0
    """Number of the recording that has it."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Requests with what is needed to read the result; None: not known."""

    kind: Literal["trace", "recordings"]
    requests: Sequence[Request]
    block_tokens: int
    bytes_per_block: int | None = None
    pool_blocks: int | None = None
    """Usable blocks of each recorded pool; None: not known, or they differ."""
    recordings: int = 0
    recorded_hits: int = 0
    """Blocks that the recorded replicas themselves found."""
    doubts: Sequence[str] = ()

    @property
    def asked_blocks(self) -> int:
        return sum(len(request.names) for request in self.requests)

    @property
    def without_session(self) -> int:
        """Requests whose session is not known."""
        return sum(request.session is None for request in self.requests)


def workload_of_trace(
    trace: Trace, on_progress: Callable[[int], None] = lambda requests: None
) -> Workload:
    """Raises WhatIfError for a trace without requests, TraceError or OSError."""
    requests = []
    for number, line in enumerate(trace, start=1):
        requests.append(
            Request(
                at=line.timestamp_ms / 1000,
                names=line.hash_ids,
                prompt_tokens=line.input_length,
                output_tokens=line.output_length,
                session=line.session,
            )
        )
        if number % TELL_EVERY == 0:
            on_progress(number)
    if not requests:
        raise WhatIfError(f"{trace.path}: no request in it has a block")
    return Workload(
        kind="trace", requests=requests, block_tokens=trace.block_size, doubts=trace.doubts
    )
