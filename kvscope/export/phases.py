"""The phases of an engine's sequences: queued, prefill, decode, preempted, one after the other."""

from collections.abc import Mapping
from typing import Literal, Protocol

from kvscope.export.course import Span
from kvscope_events.events import (
    Batch,
    BlocksAllocated,
    PagesAllocated,
    PrefixLookup,
    RequestPreempted,
    RequestResumed,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.state.fold import Fold

Phase = Literal["queued", "prefill", "decode", "preempted"]
Details = Mapping[str, int | str]
MAX_OPEN = 1 << 16
"""Sequences that have not ended; of further ones nothing is shown."""


class Sink(Protocol):
    """Takes phases in the order of time."""

    def begin(self, sequence: int, phase: Phase, at_ns: int, details: Details) -> None:
        """A phase begins, and with it ends the one before, if the sequence had one."""

    def end(self, sequence: int, at_ns: int, details: Details) -> None:
        """The sequence has ended, or the events that would say so are missing."""


class Phases(Fold):
    """Gives each phase to the sink as it begins.

    The scheduler's decisions stand at the beginning of their step, tokens and ends at its end. A
    sequence that was there before is seen with its next token.
    """

    name = "phases"

    def __init__(self, sink: Sink) -> None:
        super().__init__(
            {
                BlocksAllocated: self._allocated,
                PagesAllocated: self._allocated,
            }
        )
        self._sink = sink
        self._span = Span(0, 0)
        self._phases: dict[int, Phase] = {}
        self._ended: dict[int, Details] = {}
        """Sequences that end with this batch, whose step still names them."""

    def follow(self, batch: Batch, span: Span) -> None:
        """Apply a batch of this time."""
        self._span = span
        self.on_batch(batch)
        for sequence, details in self._ended.items():
            if self._phases.pop(sequence, None) is not None:
                self._sink.end(sequence, span.end_ns, details)
        self._ended.clear()

    def cut(self, wall_ns: int) -> None:
        """Everything ends here: what follows is unknown."""
        for sequence in self._phases:
            self._sink.end(sequence, wall_ns, {})
        self._phases.clear()

    def on_sequence_added(self, event: SequenceAdded) -> None:
        self._begin(
            event.sequence,
            "queued",
            {
                "request": event.request,
                "prompt_tokens": event.prompt_tokens,
                "max_tokens": event.max_tokens,
            },
        )

    def on_prefix_lookup(self, event: PrefixLookup) -> None:
        if not event.resumed and self._phases.get(event.sequence) in (None, "queued"):
            self._begin(event.sequence, "prefill", {"hit_blocks": event.hit_blocks})

    def _allocated(self, event: BlocksAllocated | PagesAllocated) -> None:
        """Without a prefix cache nothing is looked up."""
        if event.sequence is not None and self._phases.get(event.sequence) == "queued":
            self._begin(event.sequence, "prefill", {})

    def on_request_preempted(self, event: RequestPreempted) -> None:
        self._begin(
            event.sequence,
            "preempted",
            {
                "mode": event.mode,
                "cause": event.cause,
                "discarded_tokens": event.discarded_tokens,
                "blocks": event.blocks,
            },
        )

    def on_request_resumed(self, event: RequestResumed) -> None:
        details: Details = {
            "recompute_tokens": event.recompute_tokens,
            "cached_tokens": event.cached_tokens,
            "swapped_tokens": event.swapped_tokens,
        }
        self._begin(event.sequence, "prefill" if event.recompute_tokens else "decode", details)

    def on_step_completed(self, event: StepCompleted) -> None:
        phases = self._phases
        for sequence in event.emitted:
            # A token of the step before may come after the preemption.
            if phases.get(sequence) not in ("decode", "preempted") and sequence not in self._ended:
                self._begin(sequence, "decode", {}, self._span.end_ns)

    def on_sequence_finished(self, event: SequenceFinished) -> None:
        self._ended[event.sequence] = {
            "reason": event.reason,
            "output_tokens": event.output_tokens,
        }

    def _begin(
        self, sequence: int, phase: Phase, details: Details, at_ns: int | None = None
    ) -> None:
        if sequence in self._phases or len(self._phases) < MAX_OPEN:
            self._phases[sequence] = phase
            self._sink.begin(sequence, phase, at_ns or self._span.begin_ns, details)
