"""Answers of a server's front end, as its clients saw them."""

from kvscope_events.events import AnswerSent, FrontEndSampled
from kvscope_exporter.state import buckets
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.histogram import Histogram

CLASSES = ("2xx", "3xx", "4xx", "429", "5xx", "left")
"""4xx without 429, which says that there are too many requests; left: the client did not wait."""


class FrontEnd(CallFold):
    """Counts, and sums of seconds; nothing to forget at a gap."""

    name = "front_end"

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[tuple[str, ...], int] = {
            (route, kind): 0 for route in ("generation", "other") for kind in CLASSES
        }
        self.first_part = Histogram(buckets.FIRST_TOKEN_SECONDS)
        """Seconds to the first part of streamed answers with tokens."""
        self.beside = {"before_engine": (0, 0.0), "after_engine": (0, 0.0)}
        """Requests, and their seconds beside the engine, by place."""
        self.tokenizer = {"queue": (0, 0.0), "work": (0, 0.0)}
        """The same, of the tokenizer's threads."""
        self.now: FrontEndSampled | None = None

    def on_answer_sent(self, event: AnswerSent) -> None:
        self.answers[event.route, class_of(event)] += 1
        if event.route != "generation":
            return
        if event.status == 200 and event.first_ns is not None:
            self.first_part.observe(event.first_ns / 1e9)
        for sums, name, spent_ns in (
            (self.beside, "before_engine", event.before_ns),
            (self.beside, "after_engine", event.after_ns),
            (self.tokenizer, "queue", event.tokenizer_queue_ns),
            (self.tokenizer, "work", event.tokenizer_ns),
        ):
            if spent_ns is not None:
                requests, seconds = sums[name]
                sums[name] = requests + 1, seconds + spent_ns / 1e9

    def on_front_end_sampled(self, event: FrontEndSampled) -> None:
        self.now = event


def class_of(event: AnswerSent) -> str:
    status = event.status
    if status is None or not event.is_complete:
        return "left"
    return "429" if status == 429 else f"{min(max(status // 100, 2), 5)}xx"
