"""What vLLM counts in its own way: at the first token, with the next token, or at the end.

Semantics of vLLM 0.28 to 0.33, whose names these are.
"""

from kvscope_events.events import (
    AllocationFailed,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    DeviceMemorySampled,
    DeviceOutOfMemory,
    FirstToken,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
    StepCompleted,
)
from exporter import buckets
from exporter.fold.fold import Fold
from exporter.fold.histogram import Histogram


class Vllm(Fold):
    """Counters and histograms that no other fold already keeps."""

    name = "vllm"
    ignored = frozenset(
        {
            AllocationFailed,
            BlocksAllocated,
            BlocksCached,
            BlocksEvicted,
            BlocksReleased,
            BlocksShared,
            DeviceMemorySampled,
            DeviceOutOfMemory,
            PoolCreated,
            PoolSnapshot,
            PrefixLookup,
            RequestRejected,
            RequestResumed,
        }
    )

    def __init__(self, max_model_len: int) -> None:
        super().__init__(
            {
                RequestArrived: self._arrived,
                RequestScheduled: self._scheduled,
                RequestPreempted: self._preempted,
                FirstToken: self._first_token,
                RequestFinished: self._finished,
                StepCompleted: self._completed,
            }
        )
        tokens = buckets.up_to(buckets.VLLM_REQUEST_TOKENS, max_model_len)
        self.preemptions = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.iteration_tokens = Histogram(buckets.VLLM_ITERATION_TOKENS)
        self.request_prompt_tokens = Histogram(tokens)
        self.request_generation_tokens = Histogram(tokens)
        self.request_max_tokens = Histogram(tokens)
        self.time_per_output_token = Histogram(buckets.VLLM_INTER_TOKEN_SECONDS)
        self.queue = Histogram(buckets.VLLM_REQUEST_SECONDS)
        self.prefill = Histogram(buckets.VLLM_REQUEST_SECONDS)
        self.decode = Histogram(buckets.VLLM_REQUEST_SECONDS)
        self.inference = Histogram(buckets.VLLM_REQUEST_SECONDS)
        self._prompts: dict[int, tuple[int, int]] = {}  # until the first token: length, cached
        self._victims: dict[int, int] = {}  # preemptions since the request's last token
        self._first_prompt_tokens = 0  # computed for the requests whose first token is in this step

    def on_gap(self) -> None:
        self._prompts.clear()
        self._victims.clear()
        self._first_prompt_tokens = 0

    def _arrived(self, event: RequestArrived) -> None:
        self._prompts[event.request] = (event.prompt_tokens, 0)

    def _scheduled(self, event: RequestScheduled) -> None:
        prompt = self._prompts.get(event.request)
        if prompt is not None:
            self._prompts[event.request] = (prompt[0], event.cached_tokens)

    def _preempted(self, event: RequestPreempted) -> None:
        self._victims[event.request] = self._victims.get(event.request, 0) + 1

    def _first_token(self, event: FirstToken) -> None:
        prompt = self._prompts.pop(event.request, None)
        if prompt is not None:
            length, cached = prompt
            self.prompt_tokens += length
            self._first_prompt_tokens += length - cached

    def _completed(self, event: StepCompleted) -> None:
        if not event.emitted:
            return
        generated = len(event.emitted)
        self.generation_tokens += generated
        self.iteration_tokens.observe(self._first_prompt_tokens + generated)
        self._first_prompt_tokens = 0
        if self._victims:
            for request in event.emitted:
                self.preemptions += self._victims.pop(request, 0)

    def _finished(self, event: RequestFinished) -> None:
        self._prompts.pop(event.request, None)
        victim = self._victims.pop(event.request, 0)
        if event.reason in ("stop", "length"):  # it ends with a token, whose step may be told later
            self.preemptions += victim
        self.request_prompt_tokens.observe(event.prompt_tokens)
        self.request_generation_tokens.observe(event.output_tokens)
        self.request_max_tokens.observe(event.max_tokens)
        if event.queue_ns is not None:
            self.queue.observe(event.queue_ns / 1e9)
        if event.prefill_ns is not None:
            self.prefill.observe(event.prefill_ns / 1e9)
        if event.decode_ns is not None:
            self.decode.observe(event.decode_ns / 1e9)
            gaps = event.output_tokens - 1
            self.time_per_output_token.observe(event.decode_ns / gaps / 1e9 if gaps > 0 else 0.0)
            if event.prefill_ns is not None:
                self.inference.observe((event.prefill_ns + event.decode_ns) / 1e9)
