"""One streamed request to an OpenAI-compatible server: the response and its times."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import httpx
import msgspec

from kvscope.load.scenarios import Job, Reply
from kvscope.load.spec import LoadSpec
from kvscope_events.printable import quoted
from kvscope_exporter.fetch.error import JSON_ERRORS, plain_reason

MAX_RETRIES = 5
"""Retries of one request that gets 429, before it counts as failed."""
DEFAULT_RETRY_SECONDS = 1.0
"""Wait after a 429 without a Retry-After in seconds."""
MAX_RETRY_SECONDS = 30.0
"""Longest wait before a retry, whatever the server requests."""


class RequestFailedError(Exception):
    """A request without a complete reply.

    `kind` is the report's category: http_<status>, timeout, connection (could not be made),
    disconnected (broke), stream (an error in it, or no event), incomplete (ended early).
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The server's count of a reply's tokens. None: not reported."""

    prompt_tokens: int | None = None
    output_tokens: int | None = msgspec.field(default=None, name="completion_tokens")
    details: PromptDetails | None = msgspec.field(default=None, name="prompt_tokens_details")

    @property
    def cached_tokens(self) -> int | None:
        return None if self.details is None else self.details.cached_tokens


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request that succeeded. Seconds count from the attempt that was accepted."""

    text: str = ""
    usage: Usage = field(default_factory=Usage)
    num_chunks: int = 0
    """Chunks with output: tokens, or a few tokens each."""
    ttft: float | None = None
    """None: no chunk carried a token."""
    e2e: float = 0.0

    @property
    def reply(self) -> Reply:
        return Reply(
            text=self.text,
            prompt_tokens=self.usage.prompt_tokens,
            output_tokens=self.usage.output_tokens,
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
        """None: no token. Empty: a token whose text waits for the next (half a character)."""
        if self.delta is None:
            return self.text
        if self.delta.reasoning_content is None and self.delta.content is None:
            return None
        text = (self.delta.reasoning_content or "") + (self.delta.content or "")
        # The first chunk of a chat announces the role, before or together with a token.
        return None if self.delta.role is not None and not text else text


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Usage | None = None
    error: object = None


class _Error(msgspec.Struct):
    message: str


class _ErrorBody(msgspec.Struct):
    error: _Error


class Client:
    """Sends jobs. Holds no state except the connections."""

    def __init__(self, http: httpx.AsyncClient, spec: LoadSpec, model: str) -> None:
        self._http = http
        self._spec = spec
        self._chunks = msgspec.json.Decoder(_Chunk)
        self._common: dict[str, object] = {
            "model": model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,  # the same replies each time, as far as the server's batching allows
        }
        if spec.generates_past_eos:
            self._common["ignore_eos"] = True

    async def send(self, job: Job, retried: Callable[[], None]) -> Exchange:
        """Calls `retried` before each wait after a 429. Raises RequestFailedError."""
        body = msgspec.json.encode(self._common | job.body)
        for retries_left in reversed(range(MAX_RETRIES + 1)):
            try:
                async with asyncio.timeout(self._spec.timeout_seconds):
                    outcome = await self._attempt(job, body)
            except (TimeoutError, httpx.TimeoutException) as error:
                raise RequestFailedError("timeout", f"{self._spec.timeout_seconds:g} s") from error
            except httpx.ConnectError as error:
                raise RequestFailedError("connection", describe(error)) from error
            except httpx.RequestError as error:
                raise RequestFailedError("disconnected", describe(error)) from error
            except JSON_ERRORS as error:
                raise RequestFailedError("stream", quoted(str(error))) from error
            if isinstance(outcome, Exchange):
                return outcome
            if retries_left:
                retried()
                await asyncio.sleep(outcome)
        raise RequestFailedError("http_429", f"still refused after {MAX_RETRIES} retries")

    async def _attempt(self, job: Job, body: bytes) -> Exchange | float:
        """The exchange, or the seconds to wait before the next attempt."""
        started = time.perf_counter()
        headers = {"Content-Type": "application/json"} | authorization(self._spec)
        url = self._spec.base_url + job.path
        async with self._http.stream("POST", url, content=body, headers=headers) as response:
            if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
                return retry_seconds(response.headers.get("Retry-After"))
            if not response.is_success:
                detail = error_detail(await response.aread())
                raise RequestFailedError(f"http_{response.status_code}", detail)
            return await self._receive(response, started)

    async def _receive(self, response: httpx.Response, started: float) -> Exchange:
        exchange = Exchange()
        texts: list[str] = []
        complete = False
        async for event in _events(response):
            now = time.perf_counter()
            if event == b"[DONE]":
                complete = True
                continue
            chunk = self._chunks.decode(event)
            if chunk.error is not None:
                raise RequestFailedError("stream", _message_of(chunk.error))
            if chunk.usage is not None:
                exchange.usage = chunk.usage
            complete |= any(choice.finish_reason for choice in chunk.choices)
            outputs = [c.output for c in chunk.choices if c.output is not None]
            if outputs:
                texts += outputs
                exchange.num_chunks += 1
                if exchange.ttft is None:
                    exchange.ttft = now - started
        if not complete:
            raise RequestFailedError("incomplete", "the stream ended before the reply did")
        exchange.text = "".join(texts)
        exchange.e2e = time.perf_counter() - started
        return exchange


async def _events(response: httpx.Response) -> AsyncIterator[bytes]:
    """The data of server-sent events, one line each, as OpenAI's API sends them.

    Splits bytes, not text: U+2028 inside a reply is not a line end.
    """
    rest = b""
    async for received in response.aiter_bytes():
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


def describe(error: Exception) -> str:
    """The error as text; some of httpx's errors have none."""
    return plain_reason(error)


def authorization(spec: LoadSpec) -> dict[str, str]:
    return {} if spec.api_key is None else {"Authorization": f"Bearer {spec.api_key}"}


def retry_seconds(header: str | None) -> float:
    """Seconds to wait after a 429 with this Retry-After; the default if it is not a number."""
    try:
        seconds = float(header or DEFAULT_RETRY_SECONDS)
    except ValueError:  # a date
        return DEFAULT_RETRY_SECONDS
    return min(seconds, MAX_RETRY_SECONDS) if seconds >= 0 else DEFAULT_RETRY_SECONDS


def error_detail(body: bytes) -> str:
    """OpenAI's error message, or the beginning of the body; one line of bounded length."""
    try:
        return quoted(msgspec.json.decode(body, type=_ErrorBody).error.message)
    except JSON_ERRORS:
        return quoted(body.decode(errors="replace"))


def _message_of(error: object) -> str:
    """Text of an error inside a stream, whatever its form."""
    message = error.get("message") if isinstance(error, dict) else error
    return quoted(message) if isinstance(message, str) else "an error without a message"
