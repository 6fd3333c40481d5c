"""One streamed request to an OpenAI-compatible server: what came back, and when."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
import msgspec

from engine.workload.scenarios import Job, Reply
from engine.workload.spec import LoadSpec
from engine.workload.sse import EventParser, EventTooLongError

MAX_RETRIES = 5
"""Retries of one request that gets 429, before it counts as failed."""
MAX_RETRY_SECONDS = 30.0
"""Longest wait before a retry, whatever the server asks for."""
DEFAULT_RETRY_SECONDS = 1.0
"""Wait after a 429 without Retry-After."""

_MALFORMED = (EventTooLongError, UnicodeDecodeError, msgspec.DecodeError)


class RequestFailedError(Exception):
    """A request that brought no whole reply.

    `kind` is what the report counts: http_<status>, timeout, connection (none could be made),
    disconnected (it broke), stream (an error in it, or no event), incomplete (it ended early).
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request that succeeded. Seconds count from the attempt that was accepted."""

    text: str = ""
    prompt_tokens: int | None = None
    """Reported by the server's usage, as are the next two; None: not reported."""
    output_tokens: int | None = None
    cached_tokens: int | None = None
    num_chunks: int = 0
    """Chunks with output: tokens, or a few tokens each."""
    ttft: float | None = None
    """None: no chunk carried a token."""
    inter_token: list[float] = field(default_factory=list)
    e2e: float = 0.0

    @property
    def reply(self) -> Reply:
        return Reply(
            text=self.text, prompt_tokens=self.prompt_tokens, output_tokens=self.output_tokens
        )


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None

    @property
    def output(self) -> str | None:
        """None: no token. Empty: a token whose text waits for the next, half a character say."""
        if self.delta is None:
            return self.text
        if self.delta.reasoning_content is None and self.delta.content is None:
            return None
        text = (self.delta.reasoning_content or "") + (self.delta.content or "")
        # The first chunk of a chat announces the role, before or together with a token.
        return None if self.delta.role is not None and not text else text


class _PromptTokensDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: _PromptTokensDetails | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: object = None


class Client:
    """Sends jobs. Holds no state but the connections."""

    def __init__(self, http: httpx.AsyncClient, spec: LoadSpec, model: str) -> None:
        self._http = http
        self._spec = spec
        self._chunks = msgspec.json.Decoder(_Chunk)
        self._common: dict[str, object] = {
            "model": model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,  # the same replies each time, as far as the server's batching lets
        }
        if spec.generates_past_eos:
            self._common["ignore_eos"] = True

    async def send(self, job: Job, retried: Callable[[], None]) -> Exchange:
        """Calls `retried` before each wait that a 429 asks for. Raises RequestFailedError."""
        body = msgspec.json.encode(self._common | job.body)
        for retries_left in reversed(range(MAX_RETRIES + 1)):
            try:
                async with asyncio.timeout(self._spec.timeout_seconds):
                    outcome = await self._attempt(job.path, body)
            except (TimeoutError, httpx.TimeoutException) as error:
                raise RequestFailedError("timeout", f"{self._spec.timeout_seconds:g} s") from error
            except httpx.ConnectError as error:
                raise RequestFailedError("connection", describe(error)) from error
            except httpx.RequestError as error:
                raise RequestFailedError("disconnected", describe(error)) from error
            except _MALFORMED as error:
                raise RequestFailedError("stream", str(error)) from error
            if isinstance(outcome, Exchange):
                return outcome
            if retries_left:
                retried()
                await asyncio.sleep(outcome)
        raise RequestFailedError("http_429", f"still refused after {MAX_RETRIES} retries")

    async def _attempt(self, path: str, body: bytes) -> Exchange | float:
        """The exchange, or the seconds to wait before the next attempt."""
        started = time.perf_counter()
        headers = authorization(self._spec) | {"Content-Type": "application/json"}
        url = self._spec.base_url + path
        async with self._http.stream("POST", url, content=body, headers=headers) as response:
            if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
                return retry_seconds(response.headers.get("Retry-After"))
            if not response.is_success:
                detail = error_detail(await response.aread())
                raise RequestFailedError(f"http_{response.status_code}", detail)
            return await self._receive(response.aiter_bytes(), started)

    async def _receive(self, stream: AsyncIterator[bytes], started: float) -> Exchange:
        exchange = Exchange()
        texts: list[str] = []
        parser = EventParser()
        complete = False
        newest = started
        async for received in stream:
            now = time.perf_counter()
            for event in parser.feed(received):
                if event == "[DONE]":
                    complete = True
                    continue
                chunk = self._chunks.decode(event)
                if chunk.error is not None:
                    raise RequestFailedError("stream", str(chunk.error))
                if chunk.usage is not None:
                    _take_usage(exchange, chunk.usage)
                complete |= any(choice.finish_reason for choice in chunk.choices)
                outputs = [c.output for c in chunk.choices if c.output is not None]
                if outputs:
                    texts += outputs
                    exchange.num_chunks += 1
                    if exchange.ttft is None:
                        exchange.ttft = now - started
                    else:
                        exchange.inter_token.append(now - newest)
                    newest = now
        if not complete:
            raise RequestFailedError("incomplete", "the stream ended before the reply did")
        exchange.text = "".join(texts)
        exchange.e2e = time.perf_counter() - started
        return exchange


def describe(error: Exception) -> str:
    """The error as text; some of httpx's errors have none."""
    return str(error) or type(error).__name__


def authorization(spec: LoadSpec) -> dict[str, str]:
    return {} if spec.api_key is None else {"Authorization": f"Bearer {spec.api_key}"}


def retry_seconds(retry_after: str | None) -> float:
    """Seconds of a Retry-After header, which may be a date. Bounded; the default if unreadable."""
    if retry_after is None:
        return DEFAULT_RETRY_SECONDS
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            moment = parsedate_to_datetime(retry_after)
        except ValueError:
            return DEFAULT_RETRY_SECONDS
        # HTTP dates are UTC; one that ends in -0000 is parsed without a zone.
        seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    # Arguments in this order turn NaN into 0, too.
    return min(MAX_RETRY_SECONDS, max(0.0, seconds))


def error_detail(body: bytes) -> str:
    """OpenAI's error message, or the first bytes of the body."""
    try:
        return msgspec.json.decode(body, type=_ErrorBody).error.message
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace")


class _Error(msgspec.Struct):
    message: str


class _ErrorBody(msgspec.Struct):
    error: _Error


def _take_usage(exchange: Exchange, usage: _Usage) -> None:
    exchange.prompt_tokens = usage.prompt_tokens
    exchange.output_tokens = usage.completion_tokens
    if usage.prompt_tokens_details is not None:
        exchange.cached_tokens = usage.prompt_tokens_details.cached_tokens
