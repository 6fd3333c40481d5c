"""Latencies: queue, first token and duration by request, time between tokens by sequence.

Sequences in steady decode emit together step after step, so their gap is one observation with a
count, and their last emission is kept once for all of them. An output of several tokens, as with
speculative decoding, is as many observations of its gap divided among them.
"""

from collections import Counter
from copy import deepcopy

from kvscope_events.events import (
    FirstToken,
    RequestFinished,
    RequestScheduled,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.state import buckets
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.calls import Request, Sequence
from kvscope_exporter.state.histogram import Histogram


class Latency(CallFold):
    """Histograms in seconds, with the trace of the newest traced request in each bucket."""

    name = "latency"

    def __init__(self) -> None:
        super().__init__()
        self.queue = Histogram(buckets.QUEUE_SECONDS)
        self.first_token = Histogram(buckets.FIRST_TOKEN_SECONDS)
        self.inter_token = Histogram(
            buckets.merged(buckets.INTER_TOKEN_SECONDS, buckets.VLLM_INTER_TOKEN_SECONDS)
        )
        self.inter_output = self.inter_token
        """Time between outputs, as vLLM counts: whatever the number of their tokens. The same
        histogram until an output of several tokens comes."""
        self.duration = Histogram(buckets.REQUEST_SECONDS)
        self.abandoned = Histogram(buckets.ABANDONED_SECONDS)
        """Time until the abort, of requests that were aborted before their first token."""
        # Last emission: `_cohort_ns` for the sequences of `_cohort`, `_last_ns` for the others.
        self._last_ns: dict[int, int] = {}
        self._cohort: set[int] = set()
        self._cohort_ns = 0
        self._emitted_last: list[int] = []  # the cohort in order; empty: some have left it
        self._cohort_trace = ""
        self._leaving: list[int] = []  # finished; their last token is emitted in this step

    @property
    def num_tracked(self) -> int:
        """The number of sequences with state in this fold."""
        return len({*self._last_ns, *self._cohort})

    def on_lost(self) -> None:
        self._last_ns.clear()
        self._cohort = set()
        self._emitted_last = []
        self._leaving = []

    def on_admitted(self, event: RequestScheduled, request: Request | None) -> None:
        self._observe(self.queue, event.queue_ns, request)

    def on_answered(self, event: FirstToken, request: Request | None) -> None:
        self._observe(self.first_token, event.elapsed_ns, request)

    def on_ended(self, event: SequenceFinished, sequence: Sequence | None) -> None:
        self._leaving.append(event.sequence)

    def on_finished(self, event: RequestFinished, request: Request | None) -> None:
        self._observe(self.duration, event.elapsed_ns, request)
        if event.reason == "abort" and not event.output_tokens:
            self._observe(self.abandoned, event.elapsed_ns, request)

    def on_step_completed(self, event: StepCompleted) -> None:
        emitted, tokens = event.emitted, event.emitted_tokens
        if tokens and len(tokens) == len(emitted):
            if self.inter_output is self.inter_token:
                self.inter_output = deepcopy(self.inter_token)
            self._regroup(emitted, tokens)
        elif emitted == self._emitted_last:
            if emitted:
                now_ns = self.batch.time_ns
                seconds = (now_ns - self._cohort_ns) / 1e9
                self._cohort_ns = now_ns
                self.inter_token.observe(seconds, len(emitted))
                if self._cohort_trace or self.inter_output is not self.inter_token:
                    self._also(seconds, len(emitted))
        elif self.calls.num_traced:
            if emitted:
                self._regroup(emitted, None)
        elif emitted:
            self._advance(emitted)
        if self._leaving:
            self._forget()

    def _gap(self, seconds: float, count: int) -> None:
        """The time of as many outputs of one token each."""
        self.inter_token.observe(seconds, count)
        self._also(seconds, count)

    def _also(self, seconds: float, count: int) -> None:
        """The same as time between outputs, where that is not the same, and as an exemplar."""
        if self.inter_output is not self.inter_token:
            self.inter_output.observe(seconds, count)
        if self._cohort_trace:
            for histogram in {self.inter_token, self.inter_output}:
                histogram.mark(seconds, self._cohort_trace, self.batch.wall_ns)

    def _advance(self, emitted: list[int]) -> None:
        """Some sequences joined the cohort or left it, none is traced: only these cost anything."""
        now_ns = self.batch.time_ns
        cohort, last_ns = self._cohort, self._last_ns
        self._cohort_trace = ""
        stayed = cohort.intersection(emitted)
        if len(stayed) < len(cohort):
            last_ns.update(dict.fromkeys(cohort - stayed, self._cohort_ns))
        if stayed:
            self._gap((now_ns - self._cohort_ns) / 1e9, len(stayed))
        if len(stayed) < len(emitted):
            joined = [sequence for sequence in emitted if sequence not in stayed]
            for sequence in joined:
                before_ns = last_ns.pop(sequence, None)
                if before_ns is not None:
                    self._gap((now_ns - before_ns) / 1e9, 1)
            stayed.update(joined)
        self._cohort = stayed
        self._emitted_last = emitted
        self._cohort_ns = now_ns

    def _regroup(self, emitted: list[int], tokens: list[int] | None) -> None:
        """The set of emitting sequences changed, or some emitted several tokens: observe by equal
        last emission, form a cohort. tokens: of each sequence; None: one."""
        now_ns = self.batch.time_ns
        self._last_ns.update(dict.fromkeys(self._cohort, self._cohort_ns))
        before = [self._last_ns.pop(sequence, None) for sequence in emitted]
        self._cohort_trace = ""
        if tokens is None:
            for last_ns, count in Counter(before).items():
                if last_ns is not None:  # None: the first token, or its last one was lost in a gap
                    self._gap((now_ns - last_ns) / 1e9, count)
        else:
            for (last_ns, produced), count in Counter(zip(before, tokens, strict=True)).items():
                if last_ns is not None:
                    gap = (now_ns - last_ns) / 1e9
                    self.inter_output.observe(gap, count)
                    if produced:
                        self.inter_token.observe(gap / produced, count * produced)
        if self.calls.num_traced:
            self._mark(emitted, before, tokens or [1] * len(emitted))
        self._cohort = set(emitted)
        self._emitted_last = emitted
        self._cohort_ns = now_ns

    def _mark(self, emitted: list[int], before: list[int | None], tokens: list[int]) -> None:
        """Exemplars of the traced ones among them."""
        sequences = self.calls.sequences
        for sequence, last_ns, produced in zip(emitted, before, tokens, strict=True):
            known = sequences.get(sequence)
            trace_id = "" if known is None else known.request.trace_id
            if not trace_id:
                continue
            self._cohort_trace = trace_id
            if last_ns is not None and produced:
                gap = (self.batch.time_ns - last_ns) / 1e9
                self.inter_token.mark(gap / produced, trace_id, self.batch.wall_ns)
                if self.inter_output is not self.inter_token:
                    self.inter_output.mark(gap, trace_id, self.batch.wall_ns)

    def _forget(self) -> None:
        self._cohort.difference_update(self._leaving)
        self._emitted_last = []
        for sequence in self._leaving:
            self._last_ns.pop(sequence, None)
        self._leaving.clear()

    def _observe(self, histogram: Histogram, elapsed_ns: int, request: Request | None) -> None:
        seconds = elapsed_ns / 1e9
        histogram.observe(seconds)
        if request is not None and request.trace_id:
            histogram.mark(seconds, request.trace_id, self.batch.wall_ns)
