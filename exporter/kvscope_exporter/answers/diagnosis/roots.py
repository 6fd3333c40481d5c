"""Causes that began with the harm, within a minute: compared with the five minutes before, so that
a rise of long ago is not among them. Harm since the start has no such cause.
"""

from collections.abc import Callable, Iterable, Iterator
from math import log

from kvscope_exporter import words
from kvscope_exporter.answers.diagnosis.course import SLICE_NS, Course
from kvscope_exporter.answers.diagnosis.finding import Finding
from kvscope_exporter.answers.diagnosis.gpus import neighbours, slowed
from kvscope_exporter.answers.diagnosis.harm import MINUTE, WAITS
from kvscope_exporter.answers.diagnosis.scene import Scene
from kvscope_exporter.answers.diagnosis.verdict import Verdict
from kvscope_exporter.catalogue.incident import Kind
from kvscope_exporter.state.timeline import Figures

_MINUTE_NS = MINUTE * SLICE_NS
_EARLIER = 30
"""Slices before it to compare with; the busiest of their minutes counts."""
_GROWN = 1.5
_SIMILAR = 0.7
"""A growth whose logarithm is at least this share of the largest is named as well."""
_GIVEN_UP = 0.2
"""Share of the requests above which a rise is a storm of retries."""
_OF_DEMAND: frozenset[Kind] = frozenset(
    (*WAITS, "preemptions", "interference", "prefill", "long_steps", "out_of_memory", "latency")
)
"""Harm that more work leads to."""
_OF_A_LIMIT: tuple[Kind, ...] = ("sequence_limit", "token_budget", "interference", "transfer")
"""For harm by a limit of the engine, the remedy is to change the limit."""
_OF_THE_CARD: frozenset[Kind] = frozenset((*_OF_DEMAND, "slow_steps"))


def roots_of(scene: Scene, course: Course, verdict: Verdict) -> list[Finding]:
    """Causes of the harm's cause, the one that weighs most first."""
    began_ns = course.begin_ns(verdict.begin)
    found: list[Finding] = []
    if verdict.kind == "out_of_memory":
        found += (each for each in neighbours(scene) if _is_near(each.began_ns, began_ns))
    slow = _slowed_by(course, verdict.begin, verdict.last + 1)
    if verdict.kind in _OF_THE_CARD and slow > _GROWN:
        found += (each for each in slowed(scene) if each.began_ns <= began_ns + _MINUTE_NS)
        found += (each for each in neighbours(scene) if _is_near(each.began_ns, began_ns))
    if found:
        return found
    for restart_ns in course.restarts_ns:
        if _is_near(restart_ns, began_ns):
            return [restarted(restart_ns)]
    return list(_demand(course, verdict)) if verdict.kind in _OF_DEMAND else []


def restarted(at_ns: int) -> Finding:
    return Finding(
        kind="restarted",
        began_ns=at_ns,
        ended_ns=at_ns,
        text="the engine was restarted: its cache is empty",
        remedy="Its log before that moment says why it ended.",
    )


def _is_near(moment_ns: int, began_ns: int) -> bool:
    return -_MINUTE_NS <= moment_ns - began_ns <= 2 * SLICE_NS


def _slowed_by(course: Course, begin: int, end: int) -> float:
    """Times the expected duration that steps took."""
    expected = course.total(begin, end, lambda sums: sums.expected_ns)
    return 1 + course.total(begin, end, lambda sums: sums.slow_ns) / max(1.0, expected)


def _demand(course: Course, verdict: Verdict) -> Iterator[Finding]:
    """Growth of what makes up the load: requests, their lengths, what the cache has of them, and
    the time of a step. Those that grew most, if two did about as much."""
    begin = verdict.begin
    last = max(0, begin - MINUTE)
    earlier = [(end - MINUTE, end) for end in range(last, max(0, last - _EARLIER), -MINUTE)]
    minutes = (last, begin + 1), (max(0, begin - 1), min(verdict.last + 1, begin + MINUTE))
    if last < MINUTE:
        return

    def growth(amount: Callable[[Figures], float], base: Callable[[Figures], float]) -> _Growth:
        def most(spans: Iterable[tuple[int, int]]) -> float:
            return max(
                course.total(*span, amount) / max(1.0, course.total(*span, base)) for span in spans
            )

        return _Growth(most(span for span in earlier if span[0] >= 0), most(minutes))

    seconds = SLICE_NS / 1e9
    arrivals = growth(lambda sums: max(0, sums.arrived), lambda _: seconds)
    served = course.total(*minutes[1], lambda sums: sums.admitted + sums.aborted)
    exceeds = course.total(*minutes[1], lambda sums: sums.arrived) > 1.02 * served
    grown: list[tuple[float, Finding]] = []
    began_ns = course.begin_ns(begin)

    def found(kind: Kind, growth: _Growth, text: str, remedy: str) -> None:
        if verdict.kind in _OF_A_LIMIT and kind not in ("retries", "slow_steps"):
            remedy = ""
        if growth.ratio >= _GROWN:
            evidence = {"before": growth.before, "during": growth.during}
            grown.append(
                (
                    log(growth.ratio),
                    Finding(
                        kind=kind,
                        began_ns=began_ns,
                        ended_ns=None,
                        text=text,
                        remedy=remedy,
                        evidence=evidence,
                    ),
                )
            )

    slow = max(_slowed_by(course, *minute) for minute in minutes)
    found("slow_steps", _Growth(1.0, slow), slow_text(slow), SLOW_REMEDY)
    span = begin, verdict.last + 1
    given_up = course.total(*span, lambda sums: sums.aborted)
    share = given_up / max(1.0, course.total(*span, lambda sums: sums.arrived))
    sequences = growth(lambda sums: sums.sequences, lambda _: seconds)
    what = "requests" if arrivals.ratio >= _SIMILAR * sequences.ratio else "samples of requests"
    rise = arrivals if what == "requests" else sequences
    rose = f"{what} rose from {_short(rise.before)} to {_short(rise.during)} a second"
    if share > _GIVEN_UP:
        found(
            "retries",
            rise,
            f"{rose}, {words.share(share)} of them given up by their clients, which may ask again",
            "Have clients wait longer between attempts and stop after a few; until then refuse "
            "early (--max-num-queued-reqs, or the gateway's limit).",
        )
    elif exceeds or verdict.kind in WAITS:
        found(
            "more_requests",
            rise,
            f"{rose}, more than were served",
            "",  # that of what they wait for
        )
    prompts = growth(lambda sums: sums.prompt_blocks, lambda sums: sums.prompts)
    found(
        "longer_prompts",
        prompts,
        f"prompts grew from {prompts.before:,.0f} to {prompts.during:,.0f} blocks",
        "See whose they are with `kvscope tenants`; limit prompts, or give long ones a server of "
        "their own.",
    )
    answers = growth(lambda sums: sums.decode_tokens, lambda sums: sums.answers)
    if not (rise.ratio >= _GROWN or slow >= _GROWN):  # then fewer end than began
        found(
            "longer_answers",
            answers,
            f"{answers.during:,.0f} tokens were generated for each answer that ended "
            f"({answers.before:,.0f} before)",
            "Limit max_tokens, or size the pool for these answers.",
        )
    grown.sort(key=lambda each: -each[0])
    for weight, finding in grown:
        if weight >= _SIMILAR * grown[0][0]:
            yield finding


SLOW_REMEDY = (
    "No reason is visible from here: look for another process on the GPU or its CPU cores, a "
    "throttled or failing card (`nvidia-smi -q -d PERFORMANCE`), and a profiler."
)


def slow_text(times: float) -> str:
    return f"steps took {times:.1f} times as long for the same work"


class _Growth:
    def __init__(self, before: float, during: float) -> None:
        self.before, self.during = before, during
        self.ratio = during / before if before > 0 else 1.0


def _short(rate: float) -> str:
    return f"{float(f'{rate:.2g}'):,g}"
