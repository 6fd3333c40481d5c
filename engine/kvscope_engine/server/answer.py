"""Runs the choices of one API call and writes the answer, whole or as server-sent events.

The two APIs differ in their `Wording`; this file knows only choices and pieces.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from kvscope_engine.model.tokenizer import Tokenizer
from kvscope_engine.request import Request
from kvscope_engine.server.clients import ClientShare
from kvscope_engine.server.dispatch import Dispatcher
from kvscope_engine.server.errors import CLIENT_CLOSED_REQUEST, error_body
from kvscope_engine.server.generation import (
    Choice,
    GenerationError,
    Piece,
    StopPattern,
    generate,
)
from kvscope_engine.server.logprobs import LogprobWriter
from kvscope_engine.server.protocol import GenerationRequest, StreamUsage
from kvscope_engine.server.requests import Calls
from kvscope_events.throttle import ThrottledLog

_log = ThrottledLog(logging.getLogger(__name__))

PIECES_AT_ONCE = 32
"""Pieces of several choices that are processed before the event loop serves others."""


class Wording(Protocol):
    """One API's form of an answer."""

    def logprobs(self) -> LogprobWriter | None:
        """A new writer of log probabilities, if the caller requested them."""
        ...

    def opening(self, index: int) -> dict[str, Any] | None:
        """The chunk before a choice's first token, if the API has one."""
        ...

    def chunk(self, index: int, piece: Piece) -> dict[str, Any]:
        """One streamed piece of a choice."""
        ...

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The last chunk of a stream whose caller asked for usage."""
        ...

    def whole(self, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]:
        """The answer in one piece; `LATER` stands for each choice's log probabilities."""
        ...


async def answer(
    calls: Calls,
    http_request: HttpRequest,
    body: GenerationRequest,
    request: Request,
    wording: Wording,
    share: ClientShare,
) -> Response:
    """Submit a request and answer it; the client's share is closed when the answer ends.

    Raises the errors of `Dispatcher.submit`, ClientLimitError and BadRequestError.
    """
    share.take(request)
    stops = [StopPattern(stop) for stop in body.stop_strings]
    under_way = Answer(calls.dispatcher, calls.tokenizer, request, stops, wording, share)
    usage = body.stream_usage
    return await under_way.respond(http_request, stream=body.stream, usage=usage)


@dataclass(slots=True)
class Answer:
    """The choices of one API call in progress."""

    dispatcher: Dispatcher
    tokenizer: Tokenizer
    request: Request
    stops: Sequence[StopPattern]
    wording: Wording
    share: ClientShare

    def close(self) -> None:
        """Abort what still runs. Idempotent."""
        self.share.close()
        self.dispatcher.close(self.request)

    async def respond(
        self, http_request: HttpRequest, *, stream: bool, usage: StreamUsage
    ) -> Response:
        """Submit and answer; a client that goes away ends its call. usage: of a stream.

        Raises the errors of `Dispatcher.submit`.
        """
        self.dispatcher.submit(self.request)
        if stream:
            return _EventStream(self, usage)
        try:
            return await self._whole(http_request)
        finally:
            self.close()

    async def events(self, usage: StreamUsage) -> AsyncIterator[bytes]:
        """The stream as server-sent events."""
        produced = [0] * len(self.request.sequences)  # tokens of each choice

        def event(index: int, chunk: dict[str, Any]) -> bytes:
            if usage == "every chunk":
                prompt_length = self.request.sequences[index].prompt_length
                chunk["usage"] = _token_counts(prompt_length, produced[index])
            return _event(chunk)

        try:
            for index in range(len(produced)):
                opening = self.wording.opening(index)
                if opening is not None:
                    yield event(index, opening)
            async with aclosing(self._pieces()) as pieces:
                async for index, piece in pieces:
                    produced[index] += len(piece.tokens)
                    yield event(index, self.wording.chunk(index, piece))
            if usage != "never":
                yield _event(self.wording.usage_chunk(self._usage(sum(produced))))
        except GenerationError as error:
            yield _event(error_body(str(error), "internal_error", None, 500))
        except Exception as error:  # the status has been sent: the client must get the error here
            _log.log(logging.ERROR, type(error).__name__, "a streamed answer failed", error)
            yield _event(error_body("internal error", "internal_error", None, 500))
        yield b"data: [DONE]\n\n"

    async def _whole(self, http_request: HttpRequest) -> Response:
        collecting = asyncio.ensure_future(self._collect())
        leaving = asyncio.ensure_future(_disconnected(http_request))
        try:
            await asyncio.wait({collecting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not collecting.done():
                return Response(status_code=CLIENT_CLOSED_REQUEST)
            choices = collecting.result()
        except GenerationError as error:
            return JSONResponse(error_body(str(error), "internal_error", None, 500), 500)
        finally:
            collecting.cancel()
            leaving.cancel()
        produced = sum(len(choice.token_ids) for choice in choices)
        logprobs = [choice.logprobs.parts() for choice in choices if choice.logprobs is not None]
        return json_response(self.wording.whole(choices, self._usage(produced)), logprobs)

    async def _collect(self) -> list[Choice]:
        choices = [Choice(self.wording.logprobs()) for _ in self.request.sequences]
        async with aclosing(self._pieces()) as pieces:
            async for index, piece in pieces:
                choices[index].add(piece)
        return choices

    async def _pieces(self) -> AsyncGenerator[tuple[int, Piece]]:
        """Pieces of all choices as they come."""
        if len(self.request.sequences) == 1:
            async for piece in self._generate(0):
                yield 0, piece
            return
        merged: asyncio.Queue[tuple[int, Piece | Exception]] = asyncio.Queue()
        tasks = [
            asyncio.ensure_future(self._feed(i, merged)) for i in range(len(self.request.sequences))
        ]
        try:
            unfinished, yielded = len(tasks), 0
            while unfinished:
                index, news = await merged.get()
                if isinstance(news, Exception):
                    raise news
                unfinished -= news.finish_reason is not None
                yield index, news
                yielded += 1
                if yielded % PIECES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        finally:
            for task in tasks:
                task.cancel()

    async def _feed(self, index: int, merged: asyncio.Queue[tuple[int, Piece | Exception]]) -> None:
        try:
            async for piece in self._generate(index):
                merged.put_nowait((index, piece))
        except Exception as error:  # raised again by the reader, which owns the answer
            merged.put_nowait((index, error))

    def _generate(self, index: int) -> AsyncIterator[Piece]:
        sequence = self.request.sequences[index]
        return generate(self.dispatcher, self.tokenizer, sequence, self.stops)

    def _usage(self, produced: int) -> dict[str, Any]:
        """Each prompt counts once, however many choices it has, and so do its cached tokens."""
        found = [
            sequence.prompt_length - sequence.computed_prompt_tokens
            for sequence in self.request.prompts
            if sequence.computed_prompt_tokens is not None
        ]
        counts = _token_counts(self.request.prompt_tokens, produced)
        return {**counts, "prompt_tokens_details": {"cached_tokens": sum(found)}}


class _EventStream(StreamingResponse):
    """A stream that always ends its call, even if it ends before its first byte."""

    def __init__(self, answer: Answer, usage: StreamUsage) -> None:
        super().__init__(
            answer.events(usage),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache"},
        )
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.close()


async def _disconnected(http_request: HttpRequest) -> None:
    """Returns when the client has gone; its body was read before."""
    while (await http_request.receive())["type"] != "http.disconnect":
        continue


def _token_counts(prompt: int, produced: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": produced,
        "total_tokens": prompt + produced,
    }


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


SLICE_BYTES = 256 * 2**10
"""Bytes sent at once; between two slices the event loop serves others."""

LATER = msgspec.Raw(b"\0")
"""Placeholder for a value whose JSON is given in parts: no JSON contains this byte."""


def json_response(body: object, parts: list[list[bytes]] | None = None) -> Response:
    """The answer, of any length: long ones are sent in slices, and never joined into one piece.

    parts: the JSON of each `LATER` in it, in order.
    """
    encoded = msgspec.json.encode(body)
    if not parts:
        return Response(encoded, media_type="application/json")
    first, *others = encoded.split(LATER)
    whole = [first]
    for inserted, after in zip(parts, others, strict=True):
        whole += inserted
        whole.append(after)
    return _Slices(whole)


class _Slices(Response):
    """A JSON body in parts."""

    def __init__(self, parts: list[bytes]) -> None:
        length = {"content-length": str(sum(map(len, parts)))}
        super().__init__(None, headers=length, media_type="application/json")
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: dict[str, Any] = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(start)
        for slice_ in self._slices():
            await send({"type": "http.response.body", "body": slice_, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _slices(self) -> Iterator[bytes]:
        gathered: list[bytes] = []
        size = 0
        for part in self._parts:
            gathered.append(part)
            size += len(part)
            if size >= SLICE_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
        if gathered:
            yield b"".join(gathered)
