"""Harm in a minute of an engine's course, by what it consists of. No usual level makes it harm,
but for what the cache finds: whether new content is new can only be seen against what was before.
"""

from bisect import bisect_left
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from kvscope_exporter.answers.diagnosis.course import Course
from kvscope_exporter.answers.diagnosis.finding import by_kind
from kvscope_exporter.catalogue.incident import Kind
from kvscope_exporter.state.time_parts import SLOW_TOKEN_SECONDS

MINUTE = 6
"""Slices."""
_FEWEST = 3
"""Requests that were late, failed or were refused."""
_LATE_SHARE = 0.01
"""Share of the first tokens that the objective allows to be late."""
_UNSERVED_SHARE = 0.1
"""Some clients leave before the first token on any day."""
_STANDING, _STANDING_SECONDS = 1.0, 1.0
"""Requests that wait on average, and for how long: a queue that stands."""
_SLOW_TOKENS, _SLOW_TOKEN_SHARE = 100, 0.01
_PREEMPTIONS, _STALLED_SECONDS = 5, 2.0
_SLOW = 0.4
"""Share of the expected time of steps that they took beyond it."""
_LOST_SHARE = 0.25
"""Share of the blocks that prompts ask for."""
_ENOUGH_BLOCKS = 100
_ENOUGH_PROMPTS = 10
_LONG_TOKENS = 64
"""A prompt of fewer tokens is not worth a cache."""
_GROWN = 1.5
_ASKED = 20
"""Blocks; a slice that asked for fewer says nothing about hits."""
_BEFORE = 12
"""Slices to know from what was before."""

WAITS: tuple[Kind, ...] = (
    *("sequence_limit", "pool_full", "token_budget", "transfer", "not_admitting"),
)
_NOT_THE_POOL = tuple(kind for kind in WAITS if kind != "pool_full")


class Harm(NamedTuple):
    """The harm of a minute."""

    kind: Kind
    """Its cause: what most of it consists of."""
    severity: int
    """2: to requests; 1: work that was not needed, or a pace that is not the usual one."""
    seconds: dict[Kind, float]
    """By what it consists of; empty: it is counted, not timed."""


def harm_at(
    course: Course, index: int, first_token_bounds: Sequence[float], inter_bounds: Sequence[float]
) -> Harm | None:
    """The harm of the minute that ends with this slice."""
    minute = _Minute(course, index)
    return (
        minute.failed()
        or minute.late()
        or minute.standing()
        or minute.slow_tokens(inter_bounds)
        or minute.preempted()
        or minute.slow()
        or minute.cache()
    )


def _harm(severity: int, seconds: dict[Kind, float]) -> Harm:
    return Harm(max(seconds, key=lambda kind: seconds[kind]), severity, seconds)


class _Minute:
    def __init__(self, course: Course, index: int) -> None:
        self._course = course
        self._end = index + 1
        self._begin = max(0, self._end - MINUTE)

    def _count(self, name: str) -> float:
        return self._course.total(self._begin, self._end, lambda sums: getattr(sums, name))

    def failed(self) -> Harm | None:
        if self._count("out_of_memory"):
            return Harm("out_of_memory", 2, {})
        if self._count("failed") + self._count("met_dead") >= _FEWEST:
            return Harm("failures", 2, {})
        return None

    def late(self) -> Harm | None:
        late, unserved = self._count("late"), self._count("unserved")
        ended = self._count("first_tokens") + unserved
        is_late = late >= _FEWEST and late > _LATE_SHARE * ended
        if is_late or (unserved >= _FEWEST and unserved > _UNSERVED_SHARE * ended):
            seconds = by_kind(
                self._course.parts(self._begin, self._end, lambda sums: sums.late_parts)
            )
            if seconds:
                return _harm(2, seconds)
        return Harm("refusals", 2, {}) if self._count("crowded_out") >= _FEWEST else None

    def standing(self) -> Harm | None:
        """A queue whose limit is not the pool; one for lack of blocks is the pool at work."""
        parts = self._course.parts(self._begin, self._end, lambda sums: sums.standing)
        seconds = by_kind(parts)
        seconds = {kind: seconds[kind] for kind in _NOT_THE_POOL if kind in seconds}
        stood = sum(seconds.values())
        length = 10.0 * (self._end - self._begin)
        served = max(1.0, self._count("admitted"))
        if stood < _STANDING * length or stood < _STANDING_SECONDS * served:
            return None
        return _harm(2, seconds)

    def slow_tokens(self, bounds: Sequence[float]) -> Harm | None:
        counts = self._course.parts(self._begin, self._end, lambda sums: sums.inter_token)
        slow = sum(counts[bisect_left(bounds, SLOW_TOKEN_SECONDS) + 1 :])
        if slow < _SLOW_TOKENS or slow < _SLOW_TOKEN_SHARE * sum(counts):
            return None
        parts = self._course.parts(self._begin, self._end, lambda sums: sums.late_tokens)
        seconds = by_kind(parts)
        return _harm(2, seconds) if seconds else None

    def preempted(self) -> Harm | None:
        stalled = self._count("stalled_seconds")
        if self._count("preemptions") < _PREEMPTIONS or stalled < _STALLED_SECONDS:
            return None
        return Harm("preemptions", 2, {"preemptions": stalled})

    def slow(self) -> Harm | None:
        slices = self._course.slices[self._begin : self._end]
        slow = [each.sums.slow_ns for each in slices]
        over = [each.sums.slow_ns > _SLOW * each.sums.expected_ns for each in slices]
        if sum(over) < 2 or sum(slow) <= _SLOW * self._count("expected_ns"):
            return None
        return Harm("slow_steps", 1, {"slow_steps": sum(slow) / 1e9})

    def cache(self) -> Harm | None:
        if self._count("resets"):
            return Harm("cache_reset", 1, {})
        asked, hit = self._count("queried_blocks"), self._count("hit_blocks")
        prompts = self._count("prompts")
        if prompts >= _ENOUGH_PROMPTS and not hit and self._below_a_block(asked, prompts):
            return Harm("below_block", 1, {})
        if asked < _ENOUGH_BLOCKS:
            return None
        if self._count("evicted_blocks") > _LOST_SHARE * asked:
            return Harm("cache_too_small", 1, {})
        return self._new_content()

    def _below_a_block(self, asked: float, prompts: float) -> bool:
        partial = self._course.parts(self._begin, self._end, lambda sums: sums.missed_blocks)[-1]
        tokens = self._count("prefill_tokens") / prompts
        return 0 < asked <= partial and tokens >= _LONG_TOKENS

    def _new_content(self) -> Harm | None:
        """Fewer hits, as a share and of a prompt, and more blocks never seen, both in all and of a
        prompt: a mix of clients that shifts, or longer prompts, do only some of this."""
        hits = self._count("hit_blocks") / self._count("queried_blocks")
        before = self._course.slices[: self._begin]
        known = [each.sums for each in before if each.sums.queried_blocks >= _ASKED]
        if hits > 1 - _LOST_SHARE or len(known) < _BEFORE:
            return None
        usual = median(each.hit_blocks / each.queried_blocks for each in known)
        if hits > usual - _LOST_SHARE:
            return None
        cold = self._course.parts(self._begin, self._end, lambda sums: sums.missed_blocks)[0]
        prompts = max(1.0, self._count("prompts"))
        rate = median(each.missed_blocks[0] for each in known)
        each_cold = median(each.missed_blocks[0] / max(1, each.prompts) for each in known)
        each_hit = median(each.hit_blocks / max(1, each.prompts) for each in known)
        is_new = (
            cold / (self._end - self._begin) > _GROWN * rate
            and cold / prompts > _GROWN * each_cold
            and self._count("hit_blocks") / prompts < each_hit / _GROWN
        )
        return Harm("new_content", 1, {}) if is_new else None
