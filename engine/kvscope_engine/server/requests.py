"""From a call's body to the engine's request: texts become tokens, limits are checked by field.

Texts are encoded off the event loop if that takes long, and only as far as useful.
"""

import itertools
import secrets
import time
from collections.abc import Sequence as Several
from dataclasses import dataclass, replace
from functools import partial

from fastapi import Request as HttpRequest

from kvscope_engine.config import SchedulerConfig
from kvscope_engine.hashing import PrefixHasher, chain_seed
from kvscope_engine.model.tokenizer import Tokenizer
from kvscope_engine.request import Request, SamplingParams, Sequence
from kvscope_engine.server.body import BodyReader
from kvscope_engine.server.clients import ClientLimits, Workers
from kvscope_engine.server.dispatch import Dispatcher
from kvscope_engine.server.errors import BadRequestError, prompt_too_long
from kvscope_engine.server.logprobs import TokenNames
from kvscope_engine.server.protocol import ChatCompletionRequest, GenerationRequest
from kvscope_events.tenants import tenant_digest
from kvscope_events.trace_context import NO_TRACE, TraceContext, trace_context


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """Facts about the model that the API needs."""

    name: str
    vocab_size: int
    """Upper bound of token ids, exclusive."""
    block_size: int
    created: int
    """Unix time at which the model was ready."""


def caller_trace(http_request: HttpRequest) -> TraceContext:
    """The caller's trace, or `NO_TRACE`."""
    return trace_context(http_request.headers.get("traceparent"))


class RequestFactory:
    """Builds validated requests; requests and sequences are numbered separately."""

    def __init__(
        self, model: ServedModel, scheduler: SchedulerConfig, *, begins_traces: bool = False
    ) -> None:
        """begins_traces: a call without a trace begins one."""
        self._begins_traces = begins_traces
        self._model = model
        self._scheduler = scheduler
        self._request_ids = itertools.count()
        self._sequence_ids = itertools.count()

    def check_model(self, name: str | None) -> None:
        """Raises BadRequestError unless the name is the served one, or absent."""
        if name is not None and name != self._model.name:
            raise BadRequestError(
                "model", f"model: {name!r} is not served here; {self._model.name!r} is"
            )

    def sampling(
        self,
        body: GenerationRequest,
        prompt_length: int,
        max_tokens: int | None,
        logprobs: int | None,
    ) -> SamplingParams:
        """Sampling for a prompt of that length. max_tokens None: as many as fit."""
        limit = self._scheduler.max_model_len
        room = limit - prompt_length
        if room <= 0:
            raise prompt_too_long(_prompt_field(body), prompt_length, limit)
        if max_tokens is not None and max_tokens > room:
            param = _length_field(body)
            raise BadRequestError(
                param,
                f"{param}: {max_tokens} after a prompt of {prompt_length} tokens is over the "
                f"model's limit of {limit}: at most {room} fit",
            )
        if body.priority and self._scheduler.policy != "priority":
            raise BadRequestError(
                "priority", "priority: this server schedules in order of arrival (policy fcfs)"
            )
        return SamplingParams(
            max_tokens=room if max_tokens is None else max_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=max(0, body.top_k),
            min_p=body.min_p,
            logit_bias=self._logit_bias(body),
            presence_penalty=body.presence_penalty,
            frequency_penalty=body.frequency_penalty,
            repetition_penalty=body.repetition_penalty,
            seed=body.seed,
            stop_token_ids=frozenset(body.stop_token_ids or ()),
            ignore_eos=body.ignore_eos,
            logprobs=logprobs,
        )

    def build(
        self,
        body: GenerationRequest,
        prompts: list[tuple[list[int], SamplingParams]],
        trace: TraceContext = NO_TRACE,
    ) -> Request:
        """The request of one call: body.n sequences for each prompt, sampled as given.

        The number of a choice among those of its prompt is added to a given seed.
        """
        for prompt, _ in prompts:
            self._check_tokens(body, prompt)
        request_id = next(self._request_ids)
        seed = chain_seed(self._model.name, salt=body.cache_salt or "")
        sequences = [
            Sequence(
                sequence_id=next(self._sequence_ids),
                request_id=request_id,
                tokens=list(prompt),
                prompt_length=len(prompt),
                sampling=_for_choice(sampling, choice),
                hasher=PrefixHasher(seed, self._model.block_size),
            )
            for prompt, sampling in prompts
            for choice in range(body.n)
        ]
        return Request(
            request_id=request_id,
            sequences=sequences,
            arrival_ns=time.monotonic_ns(),
            choices_per_prompt=body.n,
            priority=body.priority,
            tenant=tenant_digest(body.user),
            trace=self._trace_of(trace),
            operation="chat" if isinstance(body, ChatCompletionRequest) else "text_completion",
        )

    def _logit_bias(self, body: GenerationRequest) -> tuple[tuple[int, float], ...]:
        biases = body.logit_bias or {}
        highest = max(biases, default=0)
        if highest >= self._model.vocab_size:
            raise BadRequestError(
                "logit_bias",
                f"logit_bias: token id {highest} is outside the vocabulary of "
                f"{self._model.vocab_size}",
            )
        return tuple(biases.items())

    def _trace_of(self, given: TraceContext) -> TraceContext:
        if given.trace_id or not self._begins_traces:
            return given
        return TraceContext(trace_id=secrets.token_hex(16))

    def _check_tokens(self, body: GenerationRequest, prompt: list[int]) -> None:
        if not prompt:
            param = _prompt_field(body)
            raise BadRequestError(param, f"{param}: must hold at least one token")
        highest = max(prompt)
        if highest >= self._model.vocab_size:
            raise BadRequestError(
                "prompt",
                f"prompt: token id {highest} is outside the vocabulary of {self._model.vocab_size}",
            )


SHORT_TEXT = 8192
"""Characters encoded on the event loop, in a few milliseconds; a thread takes 0.1 ms to start."""
LONG_TEXT = 256 * 2**10
"""Characters above which tokens are counted first: an encoded token takes about 100 bytes."""
_SPLIT_TOKENS = 8
"""Extra tokens that two halves of a text can have over the whole."""


class Encoder:
    """Encodes prompts for calls. limit: tokens of one sequence."""

    def __init__(self, tokenizer: Tokenizer, workers: Workers, limit: int) -> None:
        self._tokenizer = tokenizer
        self._workers = workers
        self._limit = limit

    async def encode(
        self, client: str, field: str, texts: Several[str], *, special_tokens: bool = True
    ) -> list[list[int]]:
        """The token ids of each text. Raises BusyError, or BadRequestError if they cannot fit."""
        work = partial(self._encode_all, field, texts, special_tokens)
        if sum(map(len, texts)) <= SHORT_TEXT:
            return work()
        return await self._workers.run(client, work)

    def _encode_all(self, field: str, texts: Several[str], special_tokens: bool) -> list[list[int]]:
        encoded = []
        for text in texts:
            if len(text) > LONG_TEXT:
                self._refuse_if_too_long(field, text)
            encoded.append(self._tokenizer.encode(text, special_tokens=special_tokens))
        return encoded

    def _refuse_if_too_long(self, field: str, text: str) -> None:
        counted = 0
        for begin in range(0, len(text), LONG_TEXT):
            part = text[begin : begin + LONG_TEXT]
            counted += self._tokenizer.count(part) - _SPLIT_TOKENS
            if counted > self._limit:
                raise prompt_too_long(field, counted, self._limit, at_least=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The parts of the server that every call goes through."""

    dispatcher: Dispatcher
    tokenizer: Tokenizer
    factory: RequestFactory
    reader: BodyReader
    encoder: Encoder
    names: TokenNames
    limits: ClientLimits
    workers: Workers
    """For bodies and texts."""
    templates: Workers
    """For chat templates, which may take seconds."""
    model: str
    limit: int
    """Tokens of one sequence."""

    def close(self) -> None:
        """End the workers' threads, and the processes that render conversations."""
        self.workers.close()
        self.templates.close()
        self.tokenizer.close()


def _for_choice(sampling: SamplingParams, choice: int) -> SamplingParams:
    if not choice or sampling.seed is None:
        return sampling
    return replace(sampling, seed=sampling.seed + choice)


def _prompt_field(body: GenerationRequest) -> str:
    return "messages" if isinstance(body, ChatCompletionRequest) else "prompt"


def _length_field(body: GenerationRequest) -> str:
    chat = isinstance(body, ChatCompletionRequest) and body.max_completion_tokens is not None
    return "max_completion_tokens" if chat else "max_tokens"
