"""`GET /api/prefixes`: the shared prompt prefixes that saved most, and those that lost most."""

from collections.abc import Callable

import msgspec

from kvscope_exporter.answers.question import QueryContext, Question, UnknownError
from kvscope_exporter.state import Cache
from kvscope_exporter.state.cache.prefix_table import Prefix, label_of

LISTED = 20

_DEFINITION = (
    "A prefix ends where a prompt parted from all earlier ones: behind the last of its leading "
    "blocks that the cache holds or held. A lookup's blocks up to there are split at the ends that "
    "are known on the way, and each part counts for the prefix that ends with it: found tokens as "
    "saved, evicted ones as lost. So a system prompt counts once for every conversation that finds "
    "it, and each conversation for what it finds below. First lookups only; a resumed sequence's "
    "does not count."
)
_NAMES = (
    "prefix is the first eight hex digits of the name of its last block, a hash over all tokens "
    "up to there. The engine publishes hashes only: neither text nor tokens of a prompt are known "
    "here."
)


class SharedPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """One prefix, since it got its counter."""

    prefix: str
    """First eight hex digits of the name of its last block."""
    continues: str | None
    """The prefix that it continued at its last lookup; None: it began the prompt."""
    length_tokens: int
    """Tokens from the beginning of the prompt."""
    hits: int
    """First lookups that found it, or part of it beyond the prefix that it continues."""
    saved_tokens: int
    lost_tokens: int
    """Tokens computed again because their blocks had been evicted."""
    max_error_tokens: int
    """Upper bound of its earlier tokens, saved and lost together."""
    last_use_seconds_ago: float
    resident: bool
    """Whether the cache holds its last block, and with it all of it."""


class PrefixesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """All tokens since the exporter began to watch."""

    definition: str
    names: str
    saved_tokens: int
    """Tokens that first lookups found."""
    lost_tokens: int
    """Tokens of first lookups computed again because their blocks had been evicted."""
    counted_prefixes: int
    counted_saved_tokens: int
    """Saved tokens counted for a prefix that has a counter now."""
    counted_lost_tokens: int
    uncounted_at_most_tokens: int
    """Upper bound of what a prefix without a counter saved and lost."""
    most_saved: list[SharedPrefix]
    """At most 20, the heaviest first."""
    most_lost: list[SharedPrefix]


def _answer(asked: QueryContext) -> PrefixesAnswer:
    cache = asked.folds[Cache]
    if not cache.known:
        raise UnknownError("the cache's state is not known until the engine's next snapshot")
    table = cache.prefixes.table
    prefixes = list(table.prefixes.values())
    now_ns = cache.now_ns(asked.clock.now().monotonic_ns)

    def top(tokens: Callable[[Prefix], int]) -> list[SharedPrefix]:
        heaviest = sorted(filter(tokens, prefixes), key=lambda p: (-tokens(p), p.name))
        return [_shared(prefix, cache, now_ns) for prefix in heaviest[:LISTED]]

    return PrefixesAnswer(
        definition=_DEFINITION,
        names=_NAMES,
        saved_tokens=cache.hit_tokens["first"],
        lost_tokens=cache.regret.tokens,
        counted_prefixes=len(prefixes),
        counted_saved_tokens=sum(prefix.saved_tokens for prefix in prefixes),
        counted_lost_tokens=sum(prefix.lost_tokens for prefix in prefixes),
        uncounted_at_most_tokens=table.least_weight,
        most_saved=top(lambda prefix: prefix.saved_tokens),
        most_lost=top(lambda prefix: prefix.lost_tokens),
    )


def _shared(prefix: Prefix, cache: Cache, now_ns: int) -> SharedPrefix:
    above = prefix.continues
    return SharedPrefix(
        prefix=prefix.label,
        continues=None if above is None else label_of(above),
        length_tokens=prefix.length_tokens,
        hits=prefix.hits,
        saved_tokens=prefix.saved_tokens,
        lost_tokens=prefix.lost_tokens,
        max_error_tokens=prefix.error_tokens,
        last_use_seconds_ago=max(0, now_ns - prefix.last_used_ns) / 1e9,
        resident=prefix.name in cache.resident.names,
    )


PREFIXES: Question[PrefixesAnswer] = Question(
    name="prefixes",
    summary="The prefixes that saved most tokens, and those that were lost most expensively.",
    events=("PrefixLookup", "PoolCreated", "BlocksCached", "BlocksEvicted"),
    counted=("PrefixLookup", "PoolCounted", "NamesStored", "NamesRemoved"),
    folds=(Cache,),
    read=_answer,
)
