"""A small OpenAI-compatible server: the protocol's other side, with a prefix cache to check on."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

BLOCK = 16


@dataclass
class Peer:
    """Its behaviour, to be set by a test, and what it saw."""

    url: str = ""
    max_model_len: int | None = 512
    api_key: str | None = None
    gives_usage: bool = True
    token_seconds: float = 0.0
    refusals: int = 0
    """This many requests get 429 first."""
    fail_status: int | None = None
    breaks: str | None = None
    """`error`: an error in the stream; `cut`: it ends early; `garbage`: no JSON."""

    bodies: list[dict[str, object]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    """Ports of the client, one per request: equal ones came over the same connection."""
    queried: int = 0
    hit: int = 0
    max_in_flight: int = 0
    _in_flight: int = 0
    _cached: set[tuple[int, ...]] = field(default_factory=set)

    def look_up(self, tokens: list[int]) -> int:
        """Tokens found; an unbounded cache of full blocks, one token always computed."""
        blocks = [tuple(tokens[: end + BLOCK]) for end in range(0, len(tokens), BLOCK)]
        full = [block for block in blocks if len(block) % BLOCK == 0]
        askable = full[: (len(tokens) - 1) // BLOCK]
        hit = BLOCK * next(
            (i for i, block in enumerate(askable) if block not in self._cached), len(askable)
        )
        self._cached.update(full)
        self.queried += len(tokens)
        self.hit += hit
        return hit

    def stream(self, body: dict[str, object], chat: bool, tokens: list[int]) -> Iterator[bytes]:
        self._in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self._in_flight)
        try:
            yield from self._events(body, chat, tokens)
        finally:
            self._in_flight -= 1

    def _events(self, body: dict[str, object], chat: bool, tokens: list[int]) -> Iterator[bytes]:
        cached = self.look_up(tokens)
        length = body["max_tokens"]
        assert isinstance(length, int)
        if chat:
            yield _event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for number in range(length):
            time.sleep(self.token_seconds)
            reason = "length" if number == length - 1 else None
            output = {"delta": {"content": "x"}} if chat else {"text": "x"}
            if number == 1 and self.breaks == "error":
                yield _event({"error": {"message": "the engine died", "code": 500}})
                return
            if number == 1 and self.breaks == "cut":
                return
            if number == 1 and self.breaks == "garbage":
                yield b"data: {nothing\n\n"
            yield _event({"choices": [output | {"index": 0, "finish_reason": reason}]})
        if self.gives_usage:
            details = {"cached_tokens": cached}
            usage = {
                "prompt_tokens": len(tokens),
                "completion_tokens": length,
                "prompt_tokens_details": details,
            }
            yield _event({"choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


def _event(chunk: dict[str, object]) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()


def _app(peer: Peer) -> FastAPI:
    app = FastAPI()

    @app.get("/v1/models")
    def models(request: Request) -> Response:
        if peer.api_key and request.headers.get("Authorization") != f"Bearer {peer.api_key}":
            return JSONResponse({"error": {"message": "wrong key"}}, status_code=401)
        model = {"id": "peer", "object": "model", "max_model_len": peer.max_model_len}
        return JSONResponse({"object": "list", "data": [model]})

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        body = await request.json()
        return _answer(peer, request, body, chat=False, tokens=body["prompt"])

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        body = await request.json()
        # A byte-level tokenizer with a template of five bytes a message.
        text = "".join(f"<{m['role'][0]}> {m['content']}\n" for m in body["messages"])
        tokens = list(text.encode())
        if not body.get("stream"):
            return JSONResponse({"usage": {"prompt_tokens": len(tokens)}})
        return _answer(peer, request, body, chat=True, tokens=tokens)

    return app


def _answer(
    peer: Peer, request: Request, body: dict[str, object], chat: bool, tokens: list[int]
) -> Response:
    peer.bodies.append(body)
    assert request.client is not None
    peer.ports.append(request.client.port)
    peer.authorizations.append(request.headers.get("Authorization"))
    if peer.refusals:
        peer.refusals -= 1
        headers = {"Retry-After": "0.05"}
        return JSONResponse({"error": {"message": "full"}}, status_code=429, headers=headers)
    if peer.fail_status is not None:
        return JSONResponse({"error": {"message": "broken"}}, status_code=peer.fail_status)
    length = body["max_tokens"]
    assert isinstance(length, int)
    if peer.max_model_len is not None and len(tokens) + length > peer.max_model_len:
        return JSONResponse({"error": {"message": "too long"}}, status_code=400)
    return StreamingResponse(peer.stream(body, chat, tokens), media_type="text/event-stream")


@contextmanager
def serving(peer: Peer) -> Iterator[Peer]:
    """Serves it on a port of its own, on a thread."""
    config = uvicorn.Config(_app(peer), port=0, log_level="warning", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    peer.url = f"http://127.0.0.1:{port}"
    try:
        yield peer
    finally:
        server.should_exit = True
        thread.join()
