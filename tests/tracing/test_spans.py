"""Spans from events by hand and at random: one for each request that ends, with true times."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import (
    Batch,
    EngineEvent,
    FirstToken,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
)
from kvscope_exporter.tracing.spans import MAX_INTEGER, MAX_MOMENTS, RequestSpan, SpanEvent, Spans
from tests.exporter.stream import batch_of, ended, finished, hello

SECOND = 10**9
BOOT_NS = 1_800_000_000 * SECOND
"""Unix time at 0 of the stream's clock."""
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ARRIVED = RequestArrived(1, 40, 64, "alice", TRACE, PARENT, True, "chat")


class Made:
    """A maker of spans and what came out of it."""

    def __init__(self, max_open: int = 100) -> None:
        self.spans: list[RequestSpan] = []
        self.dropped = 0
        self.maker = Spans(self.spans.append, self._drop, max_open)

    def _drop(self, number: int) -> None:
        self.dropped += number

    def at(self, time_ns: int, *events: EngineEvent, wall: bool = True) -> None:
        """One batch that was closed then."""
        wall_ns = BOOT_NS + time_ns if wall else 0
        self.maker.on_batch(batch_of(*events, time_ns=time_ns, wall_ns=wall_ns))


def preempted(request: int, sequence: int = 1) -> RequestPreempted:
    return RequestPreempted(sequence, request, "recompute", "out_of_blocks", 50, 4, SECOND)


def resumed(request: int, sequence: int = 1) -> RequestResumed:
    return RequestResumed(sequence, request, 18, 32, SECOND // 2)


def seconds(moments: Sequence[SpanEvent], start_ns: int) -> list[tuple[str, float]]:
    return [(each.name, (each.time_ns - start_ns) / SECOND) for each in moments]


def test_a_request_is_a_span_with_what_befell_it() -> None:
    made = Made()
    made.at(0, hello(model_name="llama", engine="3"))
    made.at(10 * SECOND, ARRIVED)
    made.at(11 * SECOND, RequestScheduled(1, SECOND, 16))  # arrived at 10, a batch ends late
    made.at(12 * SECOND, FirstToken(1, 2 * SECOND))
    made.at(13 * SECOND, preempted(1))
    made.at(14 * SECOND, resumed(1))
    ending = ended(1, elapsed_ns=5 * SECOND, computed_tokens=24, preemptions=1)
    done = finished(1, elapsed_ns=5 * SECOND, queue_ns=SECOND, preemptions=1)
    made.at(15 * SECOND + 7, ending, done)
    (span,) = made.spans
    assert span.name == "chat llama"
    assert (span.start_ns, span.end_ns) == (BOOT_NS + 10 * SECOND, BOOT_NS + 15 * SECOND)
    assert span.trace == (TRACE, PARENT, True)
    assert not span.failed
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "kvscope",
        "gen_ai.request.model": "llama",
        "gen_ai.request.max_tokens": 64,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 16,
        "kvscope.engine": "3",
        "kvscope.preemptions": 1,
        "kvscope.sequences": 1,
        "kvscope.queue_seconds": 1.0,
        "kvscope.time_to_first_token_seconds": 2.0,
    }
    assert seconds(span.moments, span.start_ns) == [
        ("kvscope.scheduled", 1.0),
        ("kvscope.prefix_hit", 1.0),
        ("kvscope.first_token", 2.0),
        ("kvscope.preempted", 3.0),
        ("kvscope.resumed", 4.0),
    ]
    assert span.moments[1].attributes == {"kvscope.cached_tokens": 16}
    assert span.moments[3].attributes["kvscope.preemption.cause"] == "out_of_blocks"
    assert span.moments[4].attributes["kvscope.recompute_tokens"] == 18
    assert "alice" not in repr(span), "the tenant may be a person"
    assert made.maker.num_pending == made.dropped == 0


def test_the_arrival_is_the_earliest_that_a_batch_allows() -> None:
    made = Made()
    made.at(10 * SECOND, ARRIVED)
    made.at(12 * SECOND, RequestScheduled(1, SECOND, 0))  # arrived at 11 or before
    made.at(13 * SECOND, FirstToken(1, 4 * SECOND))  # at 9 or before
    made.at(20 * SECOND, finished(1, elapsed_ns=10 * SECOND))
    (span,) = made.spans
    assert (span.start_ns, span.end_ns) == (BOOT_NS + 9 * SECOND, BOOT_NS + 19 * SECOND)


def test_what_is_not_known_is_absent() -> None:
    made = Made()
    made.at(SECOND, RequestArrived(1, 40, 64))
    never_ran = ended(1, reason="abort", queue_ns=None, computed_tokens=None)
    made.at(2 * SECOND, never_ran, finished(1, reason="abort", queue_ns=None))
    (span,) = made.spans
    assert span.name == "text_completion"
    assert span.trace == ("", "", False)
    assert not span.moments
    assert not span.failed, "a client that goes away is no failure of the server"
    absent = {
        "gen_ai.request.model",
        "gen_ai.usage.cache_read.input_tokens",
        "kvscope.queue_seconds",
        "kvscope.time_to_first_token_seconds",
        "error.type",
    }
    assert not absent & span.attributes.keys()


def test_an_error_fails_the_span() -> None:
    made = Made()
    made.at(SECOND, ARRIVED)
    made.at(2 * SECOND, ended(1, reason="error"), finished(1, reason="error"))
    (span,) = made.spans
    assert span.failed
    assert span.attributes["error.type"] == "error"


def test_choices_have_a_reason_each_and_prompts_count_what_they_found() -> None:
    made = Made()
    made.at(SECOND, ARRIVED)
    made.at(2 * SECOND, ended(8, request=1, reason="length", computed_tokens=30))
    made.at(3 * SECOND, ended(7, request=1, computed_tokens=40))
    made.at(3 * SECOND, finished(1, reason="length", prompt_tokens=80, sequences=2))
    (span,) = made.spans
    assert span.attributes["gen_ai.response.finish_reasons"] == ["stop", "length"]
    assert span.attributes["gen_ai.usage.cache_read.input_tokens"] == 10
    made.at(4 * SECOND, ARRIVED, ended(1, computed_tokens=40), ended(2, request=1))
    made.at(4 * SECOND, finished(1, prompt_tokens=40, sequences=2))
    assert "gen_ai.usage.cache_read.input_tokens" not in made.spans[1].attributes


def test_a_gap_forgets_requests_under_way_and_counts_them() -> None:
    made = Made()
    made.at(SECOND, ARRIVED, RequestArrived(2, 1, 1))
    made.maker.on_gap()
    assert made.maker.num_pending == 0
    made.at(2 * SECOND, finished(1), finished(2), finished(3))
    assert not made.spans
    assert made.dropped == 2, "what arrived before we listened was never promised"


def test_open_requests_are_bounded() -> None:
    made = Made(max_open=2)
    made.at(SECOND, *(RequestArrived(number, 1, 1) for number in range(5)))
    assert (made.maker.num_pending, made.dropped) == (2, 3)
    made.at(2 * SECOND, *(finished(number) for number in range(5)))
    assert len(made.spans) == 2
    made.at(3 * SECOND, RequestArrived(9, 1, 1), finished(9))
    assert len(made.spans) == 3


def test_a_number_that_comes_again_begins_anew() -> None:
    made = Made(max_open=1)
    made.at(SECOND, ARRIVED, preempted(1), RequestArrived(1, 1, 1), finished(1))
    (span,) = made.spans
    assert not span.moments
    assert made.dropped == 1


def test_moments_of_one_span_are_bounded() -> None:
    made = Made()
    made.at(SECOND, ARRIVED, *(preempted(1) for _ in range(MAX_MOMENTS + 5)), finished(1))
    (span,) = made.spans
    assert len(span.moments) == MAX_MOMENTS
    assert span.attributes["kvscope.span_events_left_out"] == 5


def test_without_a_wall_clock_or_with_times_before_it_there_is_no_span() -> None:
    made = Made()
    made.at(SECOND, ARRIVED, finished(1), wall=False)
    made.at(2 * SECOND, ARRIVED, finished(1, elapsed_ns=1 << 63))
    assert not made.spans
    assert made.dropped == 2


def test_a_number_that_no_attribute_can_hold_is_bounded() -> None:
    made = Made()
    made.at(SECOND, ARRIVED, finished(1, output_tokens=(1 << 64) - 1))
    assert made.spans[0].attributes["gen_ai.usage.output_tokens"] == MAX_INTEGER


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Batch], int]:
    """Requests that interleave, and how many of them end, each of them once."""
    num_requests = draw(st.integers(1, 6))
    events: list[list[EngineEvent]] = []
    for request in range(num_requests):
        queue = draw(st.integers(0, 50))
        story: list[EngineEvent] = [RequestArrived(request, 40, 64)]
        if draw(st.booleans()):
            story.append(RequestScheduled(request, queue, draw(st.integers(0, 2))))
            story += [FirstToken(request, queue + draw(st.integers(0, 50)))] * draw(
                st.integers(0, 1)
            )
            for _ in range(draw(st.integers(0, 3))):
                story += [preempted(request), resumed(request)]
        if draw(st.booleans()):
            elapsed = draw(st.integers(100, 1000))
            story += [ended(request), finished(request, elapsed_ns=elapsed)]
        events.append(story)
    order = draw(st.permutations([n for n, story in enumerate(events) for _ in story]))
    now, batches = 5_000, []
    left = [iter(story) for story in events]
    for number in order:
        now += draw(st.integers(0, 30))
        batches.append(batch_of(next(left[number]), time_ns=now, wall_ns=BOOT_NS + now))
    endings = sum(isinstance(e, RequestFinished) for story in events for e in story)
    return batches, endings


@given(histories())
def test_every_request_that_ends_gives_one_span_with_times_in_order(
    history: tuple[list[Batch], int],
) -> None:
    batches, endings = history
    made = Made()
    for batch in batches:
        made.maker.on_batch(batch)
    assert len(made.spans) == endings
    for span in made.spans:
        times = [moment.time_ns for moment in span.moments]
        assert [span.start_ns, *times, span.end_ns] == sorted([span.start_ns, *times, span.end_ns])
        assert span.end_ns <= BOOT_NS + batches[-1].time_ns
