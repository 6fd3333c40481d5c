"""The rows of the tables of a recording. None: unknown, or it has not happened."""

import msgspec


class Row(msgspec.Struct, kw_only=True):
    """Times are Unix times in microseconds, which DuckDB makes timestamps of."""

    engine: str
    """The data-parallel rank."""


class Step(Row):
    """A pass of the model."""

    ended_at: int
    duration_seconds: float
    running: int
    waiting: int
    swapped: int
    prefill_tokens: int
    decode_tokens: int
    output_tokens: int
    active_blocks: int
    cached_blocks: int
    free_blocks: int
    evicted_blocks: int
    preemptions: int


class Request(Row):
    """A call, from its arrival to its end."""

    request: int
    arrived_at: int | None = None
    ended_at: int | None = None
    tenant: str | None = None
    adapter: str | None = None
    operation: str | None = None
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    sequences: int | None = None
    cached_tokens: int | None = None
    queue_seconds: float | None = None
    first_token_seconds: float | None = None
    elapsed_seconds: float | None = None
    output_tokens: int | None = None
    preemptions: int | None = None
    reason: str | None = None


class BlockLife(Row):
    """A block from its allocation until it was free again."""

    block: int
    layer_group: int | None = None
    sequence: int | None = None
    """The one that it was allocated for."""
    cause: str | None = None
    """Cause of the allocation."""
    allocated_at: int | None = None
    cached_at: int | None = None
    """When its content became findable."""
    name: str | None = None
    """Name of its content, in hex."""
    hits: int = 0
    """Number of times that another sequence found it."""
    last_hit_at: int | None = None
    ended_at: int | None = None
    ended_by: str | None = None
    """released, or why it was evicted."""


class Taker(msgspec.Struct):
    sequence: int | None
    blocks: int


class PreemptionRow(Row):
    """A sequence that lost its blocks."""

    preempted_at: int
    sequence: int
    request: int
    mode: str
    cause: str
    blocks: int
    discarded_tokens: int
    age_seconds: float
    wanted_by: int | None
    """The sequence that the pool could not serve."""
    wanted_blocks: int | None
    state: str
    stalled_seconds: float | None
    recomputed_tokens: int | None
    cached_tokens: int | None
    swapped_tokens: int | None
    taken_by: list[Taker] | None
