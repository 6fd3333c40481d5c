"""Bodies of the API's requests, over HTTP to a server in this process, whose queue is full.

So each request goes all the way through decoding, validation, template and tokenizer, and computes
nothing. An input is the path, a line end, and the body.
"""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn
from urllib.parse import urlsplit

from kvscope_engine.request import Request
from kvscope_engine.step_loop import QueueFullError
from tests.support.server import serving
from tools.fuzz.target import Codec, Parse, Target

_PATHS = ("/v1/completions", "/v1/chat/completions")
_REFUSED = frozenset((400, 413))
_TAKEN = 429
"""Status of a request that would have been queued."""
_IDLE_SECONDS = 1.0
"""The server closes a connection that waits for five seconds for the next input."""
_ERROR = {"message", "type", "param", "code"}


class UnexpectedAnswerError(Exception):
    """Neither taken nor refused as documented."""


def _full(request: Request) -> NoReturn:
    raise QueueFullError(0, 0)


@contextmanager
def _opened() -> Iterator[Parse]:
    with serving() as server:
        loop = server.engine.loop
        loop.submit = _full  # type: ignore[method-assign]
        place = urlsplit(server.url)
        connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
        answered = time.monotonic()

        def parse(content: bytes) -> bool:
            nonlocal answered
            if time.monotonic() - answered > _IDLE_SECONDS:
                connection.close()  # opens itself again
            path, _, body = content.partition(b"\n")
            which = _PATHS[len(path) > len(_PATHS[0])]
            connection.request("POST", which, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            answered = time.monotonic()
            error = json.loads(text)["error"]
            if answer.status not in (_TAKEN, *_REFUSED) or error.keys() != _ERROR:
                raise UnexpectedAnswerError(f"{answer.status}: {text[:200]!r}")
            return answer.status == _TAKEN

        try:
            yield parse
        finally:
            connection.close()


def _decode(content: bytes) -> object:
    path, _, body = content.partition(b"\n")
    return {"path": path.decode(), "body": json.loads(body)}


def _encode(value: object) -> bytes:
    parts = value if isinstance(value, dict) else {"body": value}
    path = _PATHS[parts.get("path") == _PATHS[1]]
    return f"{path}\n{json.dumps(parts.get('body'))}".encode()


API_BODIES = Target(
    name="api_bodies",
    opened=_opened,
    codec=Codec(decode=_decode, encode=_encode),
    tokens=(b'"prompt"', b'"messages"', b'"stop"', b"\\ud800", b"\\u0000", b"[[", b"1e5", b"null"),
)
