"""Values that vLLM counts in its own way: at the first token, with the next token, or at the end.

The semantics are those of vLLM 0.28 to 0.33, where each sequence is a request, and where one whose
client has left is dropped: it appears in none of the figures of ended requests.
"""

from kvscope_events.events import (
    FirstToken,
    Hello,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.state import buckets
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.calls import Request, Sequence
from kvscope_exporter.state.histogram import Histogram


class Vllm(CallFold):
    """Counters and histograms that no other fold already keeps.

    Histograms of tokens keep all bounds; a page shows those up to the model's longest sequence.
    """

    name = "vllm"

    def __init__(self) -> None:
        super().__init__(
            {
                PoolCreated: self._sized,
                PoolSnapshot: self._sized,
                PoolCounted: self._sized,
            }
        )
        self.preemptions = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        """Prompt tokens that the prefix cache held, or a connector has loaded."""
        self.loaded_tokens = 0
        """Part of cached_tokens: what a connector has loaded."""
        self.generation_tokens = 0
        self.finished = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
        """Sequences by reason, without aborted ones."""
        self.iteration_tokens = Histogram(buckets.VLLM_ITERATION_TOKENS)
        self.request_prompt_tokens = Histogram(buckets.VLLM_REQUEST_TOKENS)
        self.request_generation_tokens = Histogram(buckets.VLLM_REQUEST_TOKENS)
        self.request_computed_tokens = Histogram(())
        self.request_longest_tokens = Histogram(())
        """Generated tokens of the longest sequence of each call."""
        self.first_token = Histogram(buckets.VLLM_FIRST_TOKEN_SECONDS)
        self.time_per_output_token = Histogram(buckets.VLLM_INTER_TOKEN_SECONDS)
        self.duration = Histogram(buckets.VLLM_REQUEST_SECONDS)
        self.queue = Histogram(buckets.VLLM_REQUEST_SECONDS)
        self.prefill = Histogram(())
        self.decode = Histogram(())
        self._block_size = 0
        self._are_sequences = False
        self._untold = 0  # preemptions of sequences that had no token since

    def on_lost(self) -> None:
        self._untold = 0

    def on_hello(self, event: Hello) -> None:
        self._are_sequences = event.requests_are == "sequence"

    def _sized(self, event: PoolCreated | PoolSnapshot | PoolCounted) -> None:
        self._block_size = event.block_size

    def on_prefix_lookup(self, event: PrefixLookup) -> None:
        if not (event.hit_blocks or event.loaded_tokens) or event.resumed:
            return
        sequence = self.calls.sequences.get(event.sequence)
        if sequence is not None:
            sequence.found_tokens = event.hit_blocks * self._block_size + event.loaded_tokens
            sequence.loaded_tokens = event.loaded_tokens or sequence.loaded_tokens

    def on_admitted(self, event: RequestScheduled, request: Request | None) -> None:
        """Tokens loaded by a connector are not computed; known only for a call's single
        sequence."""
        if self._are_sequences and event.cached_tokens:
            sequence = self.calls.sequences.get(event.request)
            if sequence is not None:
                sequence.found_tokens = event.cached_tokens

    def on_preempted(self, event: RequestPreempted, sequence: Sequence) -> None:
        sequence.untold_preemptions += 1
        self._untold += 1

    def on_answered(self, event: FirstToken, request: Request | None) -> None:
        if request is not None:
            request.first_ns = self.batch.time_ns - event.elapsed_ns

    def on_step_completed(self, event: StepCompleted) -> None:
        emitted = event.emitted
        if emitted:
            produced = len(emitted) if event.output_tokens is None else event.output_tokens
            self.generation_tokens += produced
            computed = self._begin(event.first_tokens) if event.first_tokens else 0
            self.iteration_tokens.observe(computed + produced)
            if self._untold:
                for number in emitted:
                    self.preemptions += self._tell(self.calls.sequences.get(number))

    def _begin(self, sequences: list[int]) -> int:
        """Count sequences with their first token; returns the prompt tokens computed for them."""
        computed = 0
        for number in sequences:
            sequence = self.calls.sequences.get(number)
            if sequence is None or sequence.added is None or sequence.has_token:
                continue  # it began before a gap
            sequence.has_token = True
            found, prompt_tokens = sequence.found_tokens, sequence.added.prompt_tokens
            self.loaded_tokens += min(found, sequence.loaded_tokens)
            self.prompt_tokens += prompt_tokens
            self.cached_tokens += found
            computed += prompt_tokens - found
            arrival_ns = sequence.request.first_ns
            if arrival_ns is not None:
                self.first_token.observe((self.batch.time_ns - arrival_ns) / 1e9)
        return computed

    def _tell(self, sequence: Sequence | None) -> int:
        """Its preemptions since its last token, which are then no longer pending."""
        if sequence is None:
            return 0
        count, sequence.untold_preemptions = sequence.untold_preemptions, 0
        self._untold -= count
        return count

    def on_ended(self, event: SequenceFinished, sequence: Sequence | None) -> None:
        if sequence is not None and event.reason in ("abort", "error"):
            sequence.has_token = True  # the others end with one
        victim = self._tell(sequence)
        if event.reason == "abort":
            return
        self.finished["stop" if event.reason == "stop_string_or_abort" else event.reason] += 1
        if event.reason in ("stop", "length"):  # it ends with a token, whose step may come later
            self.preemptions += victim
        request = self.calls.requests.get(event.request)
        if request is not None:
            request.longest_output = max(request.longest_output, event.output_tokens)
        self.request_prompt_tokens.observe(event.prompt_tokens)
        self.request_generation_tokens.observe(event.output_tokens)
        if event.computed_tokens is not None:
            self.request_computed_tokens.observe(event.computed_tokens)
        self.duration.observe(event.elapsed_ns / 1e9)
        if event.queue_ns is not None:
            self.queue.observe(event.queue_ns / 1e9)
        if event.prefill_ns is not None:
            self.prefill.observe(event.prefill_ns / 1e9)
        if event.decode_ns is not None:
            self.decode.observe(event.decode_ns / 1e9)
            gaps = event.output_tokens - 1
            self.time_per_output_token.observe(event.decode_ns / gaps / 1e9 if gaps > 0 else 0.0)

    def on_finished(self, event: RequestFinished, request: Request | None) -> None:
        if request is not None and request.longest_output:
            self.request_longest_tokens.observe(request.longest_output)
            request.longest_output = 0
