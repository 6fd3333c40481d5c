"""The requests that a page may have `kvscope demo` send to itself, so that a tour need not wait.

No other command has these routes. They check no key: the app that includes them controls access.
"""

import logging
import random
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import httpx
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from kvscope.load.text import words
from kvscope.serving.listen import url_of

logger = logging.getLogger("kvscope")

MAX_ACTS = 4
"""At the same time: the demo is to be seen at work, not to be stopped by it."""
SECONDS = 120.0
"""Longest wait for an answer; the demo's own load is queued before it."""
Body = dict[str, Any]
_SHARED = words(random.Random("a shared prefix"), 416)
"""Tokens are bytes: 26 blocks, the same ones each time."""


def _share(choice: random.Random) -> list[Body]:
    """The second finds the blocks of the first."""
    return [{"prompt": f"{_SHARED} {words(choice, 40)}", "max_tokens": 32} for _ in range(2)]


def _fill(choice: random.Random) -> list[Body]:
    """More blocks than the pool of the demo has, all of them wanted at once."""
    return [{"prompt": [words(choice, 860) for _ in range(8)], "max_tokens": 128}]


def _fork(choice: random.Random) -> list[Body]:
    """Four continuations share the blocks of one prompt, whose last one they copy to write on."""
    return [{"prompt": words(choice, 216), "n": 4, "temperature": 1.0, "max_tokens": 120}]


ACTS: Mapping[str, Callable[[random.Random], list[Body]]] = MappingProxyType(
    {"share": _share, "fill": _fill, "fork": _fork}
)
"""By name: completions that are asked for one after the other."""


def acts_router() -> APIRouter:
    """`POST /api/demo/ACT`: answers at once; its requests go on on a thread."""
    router = APIRouter(prefix="/api/demo", include_in_schema=False)
    room = threading.BoundedSemaphore(MAX_ACTS)

    @router.post("/{act}")
    def provoke(act: str, request: Request) -> Response:
        if act not in ACTS:
            return PlainTextResponse(f"no such act; known: {', '.join(ACTS)}\n", 404)
        if not room.acquire(blocking=False):
            return PlainTextResponse(f"{MAX_ACTS} acts run already: wait for one to end\n", 429)
        host, port = request.scope["server"]  # of this socket, whatever the Host header says
        bodies = ACTS[act](random.Random())
        arguments = (act, url_of(host, port), bodies, room)
        threading.Thread(target=_send, args=arguments, name="demo-act", daemon=True).start()
        return JSONResponse({"act": act, "requests": len(bodies)}, 202)

    return router


def _send(act: str, url: str, bodies: list[Body], room: threading.BoundedSemaphore) -> None:
    try:
        with httpx.Client(timeout=SECONDS, trust_env=False) as client:
            for body in bodies:
                wanted = {"model": "demo", "ignore_eos": True, **body}
                client.post(f"{url}/v1/completions", json=wanted).raise_for_status()
    except httpx.HTTPError as error:
        logger.warning("the act %s of the demo ended early: %s", act, error)
    finally:
        room.release()
