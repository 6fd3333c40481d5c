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
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.state import buckets
from kvscope_exporter.state.fold import Fold
from kvscope_exporter.state.histogram import Histogram


class Vllm(Fold):
    """Counters and histograms that no other fold already keeps.

    Histograms of tokens keep all bounds; a page shows those up to the model's longest sequence.
    """

    name = "vllm"

    def __init__(self) -> None:
        super().__init__(
            {
                Hello: self._introduced,
                PoolCreated: self._sized,
                PoolSnapshot: self._sized,
                PoolCounted: self._sized,
                SequenceAdded: self._arrived,
                PrefixLookup: self._looked_up,
                RequestScheduled: self._scheduled,
                RequestPreempted: self._preempted,
                FirstToken: self._first_token,
                SequenceFinished: self._ended,
                RequestFinished: self._finished,
                StepCompleted: self._completed,
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
        self._added: dict[int, SequenceAdded] = {}  # by sequence, until its first token
        self._found: dict[int, int] = {}  # tokens by sequence, until its first token; never 0
        self._loaded: dict[int, int] = {}  # part of them, likewise
        self._are_sequences = False
        self._arrivals_ns: dict[int, int] = {}  # by request, once it has a token
        self._leaving: list[int] = []  # requests that ended; their last token comes in this step
        self._longest: dict[int, int] = {}  # by request, of its sequences that ended
        self._victims: dict[int, int] = {}  # preemptions since the sequence's last token

    def on_gap(self) -> None:
        self._added.clear()
        self._found.clear()
        self._loaded.clear()
        self._arrivals_ns.clear()
        self._leaving.clear()
        self._longest.clear()
        self._victims.clear()

    @property
    def num_pending(self) -> int:
        found = len(self._found) + len(self._loaded)
        of_sequences = len(self._added) + found + len(self._victims)
        return of_sequences + len(self._arrivals_ns) + len(self._longest) + len(self._leaving)

    def _introduced(self, event: Hello) -> None:
        self._are_sequences = event.requests_are == "sequence"

    def _sized(self, event: PoolCreated | PoolSnapshot | PoolCounted) -> None:
        self._block_size = event.block_size

    def _arrived(self, event: SequenceAdded) -> None:
        self._added[event.sequence] = event

    def _looked_up(self, event: PrefixLookup) -> None:
        if not (event.hit_blocks or event.loaded_tokens):
            return
        if event.resumed or event.sequence not in self._added:
            return
        hit_tokens = event.hit_blocks * self._block_size
        self._found[event.sequence] = hit_tokens + event.loaded_tokens
        if event.loaded_tokens:
            self._loaded[event.sequence] = event.loaded_tokens

    def _scheduled(self, event: RequestScheduled) -> None:
        """Tokens loaded by a connector are not computed; known only for a call's single
        sequence."""
        if self._are_sequences and event.cached_tokens and event.request in self._added:
            self._found[event.request] = event.cached_tokens

    def _preempted(self, event: RequestPreempted) -> None:
        self._victims[event.sequence] = self._victims.get(event.sequence, 0) + 1

    def _first_token(self, event: FirstToken) -> None:
        self._arrivals_ns[event.request] = self.batch.time_ns - event.elapsed_ns

    def _completed(self, event: StepCompleted) -> None:
        emitted = event.emitted
        if emitted:
            produced = len(emitted) if event.output_tokens is None else event.output_tokens
            self.generation_tokens += produced
            computed = self._begin(event.first_tokens) if event.first_tokens else 0
            self.iteration_tokens.observe(computed + produced)
            if self._victims:
                for sequence in emitted:
                    self.preemptions += self._victims.pop(sequence, 0)
        if self._leaving:
            for request in self._leaving:
                self._arrivals_ns.pop(request, None)
            self._leaving.clear()

    def _begin(self, sequences: list[int]) -> int:
        """Count sequences with their first token; returns the prompt tokens computed for them."""
        computed = 0
        for sequence in sequences:
            added = self._added.pop(sequence, None)
            if added is None:  # before a gap
                continue
            found = self._found.pop(sequence, 0)
            if self._loaded:
                self.loaded_tokens += min(found, self._loaded.pop(sequence, 0))
            self.prompt_tokens += added.prompt_tokens
            self.cached_tokens += found
            computed += added.prompt_tokens - found
            arrival_ns = self._arrivals_ns.get(added.request)
            if arrival_ns is not None:
                self.first_token.observe((self.batch.time_ns - arrival_ns) / 1e9)
        return computed

    def _ended(self, event: SequenceFinished) -> None:
        if event.reason in ("abort", "error"):  # the others end with a token
            self._added.pop(event.sequence, None)
            self._found.pop(event.sequence, None)
            self._loaded.pop(event.sequence, None)
        victim = self._victims.pop(event.sequence, 0)
        if event.reason == "abort":
            return
        self.finished["stop" if event.reason == "stop_string_or_abort" else event.reason] += 1
        if event.reason in ("stop", "length"):  # it ends with a token, whose step may come later
            self.preemptions += victim
        longest = self._longest.get(event.request, 0)
        if event.output_tokens > longest:
            self._longest[event.request] = event.output_tokens
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

    def _finished(self, event: RequestFinished) -> None:
        longest = self._longest.pop(event.request, None)
        if longest is not None:
            self.request_longest_tokens.observe(longest)
        self._leaving.append(event.request)
