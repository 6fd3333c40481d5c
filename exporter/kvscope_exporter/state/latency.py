"""Latencies: queue, first token and duration by request, time between tokens by sequence.

Sequences in steady decode emit together step after step, so their gap is one observation with a
count, and their last emission is kept once for all of them. An output of several tokens, as with
speculative decoding, is as many observations of its gap divided among them.
"""

from collections import Counter
from copy import deepcopy

from kvscope_events.events import (
    FirstToken,
    RequestArrived,
    RequestFinished,
    RequestScheduled,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.state import buckets
from kvscope_exporter.state.fold import Fold
from kvscope_exporter.state.histogram import Histogram


class Latency(Fold):
    """Histograms in seconds, with the trace of the newest traced request in each bucket."""

    name = "latency"

    def __init__(self) -> None:
        super().__init__(
            {
                RequestArrived: self._arrived,
                RequestScheduled: self._scheduled,
                FirstToken: self._first_token,
                SequenceAdded: self._added,
                SequenceFinished: self._ended,
                RequestFinished: self._finished,
                StepCompleted: self._stepped,
            }
        )
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
        self._traces: dict[int, str] = {}  # by request
        self._sequence_traces: dict[int, str] = {}
        # Last emission: `_cohort_ns` for the sequences of `_cohort`, `_last_ns` for the others.
        self._last_ns: dict[int, int] = {}
        self._cohort: set[int] = set()
        self._cohort_ns = 0
        self._emitted_last: list[int] = []  # the cohort in order; empty: some have left it
        self._cohort_trace = ""
        self._leaving: list[int] = []  # finished; their last token is emitted in this step

    @property
    def num_tracked(self) -> int:
        """The number of sequences and of traced requests with state in this fold."""
        sequences = {*self._last_ns, *self._cohort, *self._sequence_traces}
        return len(sequences) + len(self._traces)

    @property
    def num_pending(self) -> int:
        of_sequences = len(self._sequence_traces) + len(self._last_ns) + len(self._leaving)
        return of_sequences + len(self._traces)

    def on_gap(self) -> None:
        self._traces.clear()
        self._sequence_traces.clear()
        self._last_ns.clear()
        self._cohort = set()
        self._emitted_last = []
        self._leaving = []

    def _arrived(self, event: RequestArrived) -> None:
        if event.trace_id:
            self._traces[event.request] = event.trace_id

    def _added(self, event: SequenceAdded) -> None:
        if self._traces:
            trace_id = self._traces.get(event.request)
            if trace_id is not None:
                self._sequence_traces[event.sequence] = trace_id

    def _scheduled(self, event: RequestScheduled) -> None:
        self._observe(self.queue, event.queue_ns, event.request)

    def _first_token(self, event: FirstToken) -> None:
        self._observe(self.first_token, event.elapsed_ns, event.request)

    def _ended(self, event: SequenceFinished) -> None:
        self._leaving.append(event.sequence)

    def _finished(self, event: RequestFinished) -> None:
        self._observe(self.duration, event.elapsed_ns, event.request)
        if event.reason == "abort" and not event.output_tokens:
            self._observe(self.abandoned, event.elapsed_ns, event.request)
        self._traces.pop(event.request, None)

    def _stepped(self, event: StepCompleted) -> None:
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
        elif self._sequence_traces:
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
        if self._sequence_traces:
            self._mark(emitted, before, tokens or [1] * len(emitted))
        self._cohort = set(emitted)
        self._emitted_last = emitted
        self._cohort_ns = now_ns

    def _mark(self, emitted: list[int], before: list[int | None], tokens: list[int]) -> None:
        """Exemplars of the traced ones among them."""
        for sequence, last_ns, produced in zip(emitted, before, tokens, strict=True):
            trace_id = self._sequence_traces.get(sequence)
            if trace_id is None:
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
            self._sequence_traces.pop(sequence, None)
        self._leaving.clear()

    def _observe(self, histogram: Histogram, elapsed_ns: int, request: int) -> None:
        seconds = elapsed_ns / 1e9
        histogram.observe(seconds)
        trace_id = self._traces.get(request)
        if trace_id is not None:
            histogram.mark(seconds, trace_id, self.batch.wall_ns)
