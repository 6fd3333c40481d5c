"""The stream of a pool of a window and full attention, by hand, and names for it."""

from kvscope_events.events import (
    BlocksAllocated,
    BlocksReleased,
    CacheGroup,
    EngineEvent,
    PrefixLookup,
    SequenceAdded,
    StepCompleted,
    StepScheduled,
)
from kvscope_events.names import CONTENT_BYTES, suffix_of

SIZE = 4
FULL = CacheGroup("full_attention", SIZE)
WINDOW = CacheGroup("sliding_window", SIZE, 8)
STATE = CacheGroup("state", SIZE, at_chunk_ends=True)


def digest(prompt: int, block: int) -> bytes:
    return bytes([prompt, block]).ljust(CONTENT_BYTES, b"-")


def digests(prompt: int, blocks: int) -> list[bytes]:
    return [digest(prompt, block) for block in range(blocks)]


def request(number: int, prompt: int, hit_blocks: int, tokens: int = 21) -> list[EngineEvent]:
    """The stream of one request of one chunk, from a pool of a window and full attention."""
    names = [one + suffix_of(1) for one in digests(prompt, (tokens - 1) // SIZE)]
    computed = tokens - SIZE * hit_blocks
    return [
        SequenceAdded(number, number, tokens, 1),
        PrefixLookup(number, tokens, names, hit_blocks),
        BlocksAllocated(number, [], "prefill"),
        StepScheduled([number], [computed], 100 - computed),
        BlocksReleased(number, [], [], [], "finished"),
        StepCompleted(1, 0, 0, 0, computed, 0, None, 0, 0, 0, [number], [number], 0, 0),
    ]


def alternating(hit_blocks: int) -> list[list[EngineEvent]]:
    """Two prompts in turn, of five full blocks to find."""
    return [request(1 + n, n % 2, hit_blocks if n > 1 else 0) for n in range(40)]
