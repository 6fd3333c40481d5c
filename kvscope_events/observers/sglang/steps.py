"""Follows SGLang's requests through its steps: arrival, admission, tokens, retraction, end.

With its overlapping loop a batch is put together before the result of the one before is processed;
the order of the calls is the order of the events, and all counts agree when a result has been
processed.
"""

from __future__ import annotations

import time
from typing import Any

from kvscope_events.events import (
    EngineEvent,
    FirstToken,
    PrefixLookup,
    RequestResumed,
    RequestScheduled,
    StepCompleted,
    StepScheduled,
)
from kvscope_events.observers.sglang.admission import Admission
from kvscope_events.observers.sglang.cohort import Cohort
from kvscope_events.observers.sglang.content import can_name, lookup_names
from kvscope_events.observers.sglang.pages import Pages
from kvscope_events.observers.sglang.patching import Arguments, Keywords
from kvscope_events.observers.sglang.requests import (
    Sequence,
    Sequences,
    cause_of,
    ending,
    loaded_tokens,
    preempted,
)


class Steps:
    """The hooks of the scheduler and of its batches."""

    def __init__(
        self, scheduler: Any, events: list[EngineEvent], version: str, *, names: bool
    ) -> None:
        self.scheduler = scheduler
        self.events = events
        self.sequences = Sequences()
        self.pages = Pages(scheduler, self.number_of, events)
        self.cohort = Cohort(self.pages.page)
        self.admission = Admission(scheduler)
        self.began_ns = 0
        self.largest_step = 0
        self._version = version
        self._names = names
        self._retracting = False
        self._first: list[int] = []  # sequences with their first token in this step
        self._gone: list[int] = []  # sequences that ended in this step with a token
        self._prefills: set[str] = set()  # running, without a token since their admission

    def number_of(self, request: Any) -> int | None:
        sequence = self.sequences.running.get(request.rid)
        return None if sequence is None else sequence.number or None

    def forget(self) -> None:
        """Let go of SGLang's requests."""
        numbers, self.sequences = self.sequences, Sequences()
        self.sequences.number_from(numbers)
        self.cohort.forget()

    # Arrival.

    def queued(self, note: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        request = args[0] if args else kwargs["req"]
        waiting = self.sequences.waiting.get(request.rid)
        if waiting is not None and waiting.preempted_ns is not None:
            # A pause, for new weights, retracts without saying so in `is_retracted`.
            paused = getattr(self.scheduler, "_engine_paused", False)
            self.events += preempted(waiting, "reset" if paused else "out_of_blocks")
            return
        queue = self.scheduler.waiting_queue
        if queue and queue[-1] is request:  # otherwise refused: the queue is full, its priority
            self.events += self.sequences.arrive(request, time.monotonic_ns())

    # A step.

    def begins(self) -> None:
        """Called over and over while nothing runs: must cost nothing."""
        self.began_ns = time.monotonic_ns()
        self.admission.stop = None

    def extend_begins(self, args: Arguments, kwargs: Keywords) -> int:
        self.pages.tell_unlocked()  # before the admissions that lock it again
        return len(self.events)

    def extended(self, place: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        """A prefill batch has its memory: admissions, and further chunks of running requests."""
        batch, page, running = args[0], self.pages.page, self.sequences.running
        chunks: dict[int, int] = {}
        for request, prefix, extend in zip(
            batch.reqs, batch.prefix_lens, batch.extend_lens, strict=True
        ):
            sequence = running.get(request.rid)
            if sequence is None:
                sequence, told = self._admitted(request, int(prefix))
                # Before the evictions that made room for it.
                self.events[place:place] = told
                place += len(told)
            pages = -(-(prefix + extend) // page) - -(-prefix // page)
            self.pages.allocate(sequence.number or None, int(pages), "prefill")
            # 0: it came before the observer.
            chunks[sequence.number] = chunks.get(sequence.number, 0) + int(extend)
        limit = self.scheduler.chunked_prefill_size or self.scheduler.max_prefill_tokens
        room = max(0, limit - sum(chunks.values()))
        self.events.append(StepScheduled([*chunks], [*chunks.values()], room))

    def _admitted(self, request: Any, prefix: int) -> tuple[Sequence, list[EngineEvent]]:
        began_ns, pages = self.began_ns, self.pages
        sequence = self.sequences.join(request, began_ns)
        number, resumed = sequence.number, sequence.preempted_ns is not None
        queried = len(request.origin_input_ids) + len(request.output_ids)
        loaded = loaded_tokens(request) if pages.has_host_tier else 0
        named = self._names and can_name(request, self._version)
        told: list[EngineEvent] = [
            PrefixLookup(
                number,
                queried,
                lookup_names(request, pages.page) if named else [],
                (prefix - loaded) // pages.page,
                resumed,
                loaded,
                "host" if loaded else None,
                named=named,
            )
        ]
        if not sequence.reported:
            sequence.preempted_ns = None
        elif sequence.preempted_ns is None:
            sequence.queue_ns = max(0, began_ns - sequence.arrived_ns)
            sequence.computed_tokens = max(0, len(request.origin_input_ids) - prefix)
            told.append(RequestScheduled(number, sequence.queue_ns, prefix))
        else:
            tokens, _ = sequence.discarded
            found = min(prefix, tokens)
            told.append(
                RequestResumed(
                    *(number, number, tokens - found, found),
                    max(0, began_ns - sequence.preempted_ns),
                    loaded_tokens=min(loaded, found),
                    loaded_from="host" if loaded else None,
                )
            )
            sequence.preempted_ns = None
        shared = pages.admit(number, prefix, request.last_node)
        if shared is not None:
            told.append(shared)
        sequence.admitted_ns = began_ns
        sequence.outputs = len(request.output_ids)
        self._prefills.add(request.rid)
        self.cohort.forget()
        return sequence, told

    def decoded(self, note: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        """A decode batch has its memory."""
        self.pages.allocate(None, self.cohort.pages_begun(args[0].reqs), "decode")

    def completed(self, args: Arguments) -> StepCompleted:
        """The result of a batch was processed: the event of its step."""
        batch = args[0]
        requests, sequences = batch.reqs, self.sequences
        running, waiting = len(sequences.running), len(self.scheduler.waiting_queue)
        prefill_tokens, decode_tokens = 0, len(requests)
        if batch.forward_mode.is_extend():
            decode_tokens = len(getattr(batch, "decoding_reqs", None) or ())
            prefill_tokens = max(0, int(batch.extend_num_tokens or 0) - decode_tokens)
            now_ns = time.monotonic_ns()
            for request in requests:
                if request.rid in self._prefills:
                    self._token(sequences.running.get(request.rid), now_ns)
        emitted = self.cohort.emitted(requests, sequences.running, self._prefills)
        if self._gone:
            emitted, self._gone = [*emitted, *self._gone], []
        first, self._first = self._first, []
        self.largest_step = max(self.largest_step, prefill_tokens + decode_tokens)
        pages = self.pages
        return StepCompleted(
            max(0, time.monotonic_ns() - self.began_ns),
            running,
            waiting,
            0,
            prefill_tokens,
            decode_tokens,
            None,
            pages.private + pages.protected,
            pages.evictable,
            pages.free,
            emitted,
            first,
            running,
            waiting,
            protected_blocks=pages.protected,
            admission_stop=self.admission.completed(),
        )

    def _token(self, sequence: Sequence | None, now_ns: int) -> None:
        """It has more tokens than when it was admitted, if its prompt has been computed."""
        if sequence is None or len(sequence.request.output_ids) <= sequence.outputs:
            return
        self._prefills.discard(sequence.request.rid)
        self.cohort.forget()
        if sequence.reported and sequence.first_token_ns is None:
            sequence.first_token_ns = now_ns
            self._first.append(sequence.number)
            self.events.append(FirstToken(sequence.number, now_ns - sequence.arrived_ns))

    # The end of a request, or of its turn.

    def row_freed(self, args: Arguments, kwargs: Keywords) -> None:
        """The last call of every release, with all lengths still there."""
        request = args[0] if args else kwargs["req"]
        rid = request.rid
        ends = request.finished() or (
            getattr(request, "to_finish", None) is not None and not self._retracting
        )
        sequence = self.sequences.running.get(rid)
        now_ns = time.monotonic_ns()
        if ends and rid in self._prefills:
            self._token(sequence, now_ns)
        held = self.pages.release(request, cause_of(request) if ends else "preempted")
        if held is None:
            return
        self.sequences.running.pop(rid, None)
        self._prefills.discard(rid)
        self.cohort.forget()
        if sequence is None:
            return
        if ends:
            self._end(sequence, now_ns)
            return
        committed = getattr(request.kv, "kv_committed_len", None)
        tokens = request.kv_committed_len if committed is None else committed
        sequence.discarded = int(tokens), held
        sequence.preempted_ns = now_ns
        self.sequences.waiting[rid] = sequence

    def retract_begins(self, args: Arguments, kwargs: Keywords) -> None:
        self._retracting = True

    def retracted(self, note: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        """SGLang ends the ones among them that could not even run alone."""
        self._retracting = False
        self.admission.stop = "blocks"
        for request in result[2]:
            sequence = self.sequences.waiting.pop(request.rid, None)
            if sequence is not None:
                self._end(sequence, time.monotonic_ns())

    def forget_waiting(self) -> None:
        """Requests that left the queue without having run: aborted, refused, timed out."""
        left = self.sequences.left(self.scheduler.waiting_queue)
        if left:
            now_ns = time.monotonic_ns()
            for sequence in left:
                self.events += ending(sequence, now_ns)

    def _end(self, sequence: Sequence, now_ns: int) -> None:
        if sequence.reported and len(sequence.request.output_ids) > sequence.outputs:
            self._gone.append(sequence.number)
        self.events += ending(sequence, now_ns)
