"""The app of `kvscope webhook`, and its certificate, which is renewed while it runs."""

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.concurrency import run_in_threadpool

from kvscope_exporter.web.metrics import bare_app
from kvscope_exporter.web.tls import server_context

MAX_BODY = 8 << 20
"""Bytes of a request; an API server's own limit for an object is 3 MiB."""
logger = logging.getLogger("kvscope")


def webhook_app(answer: Callable[[bytes], bytes]) -> FastAPI:
    """`POST /observe` for an API server, and `GET /health` for a kubelet.

    answer: takes and gives an AdmissionReview, on a worker thread. Raises msgspec.DecodeError.
    """
    app = bare_app("kvscope webhook")

    @app.post("/observe")
    async def observe(request: Request) -> Response:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY:
                return PlainTextResponse(f"larger than {MAX_BODY >> 20} MiB\n", 413)
        try:
            content = await run_in_threadpool(answer, bytes(body))
        except msgspec.DecodeError as error:
            return PlainTextResponse(f"not an AdmissionReview: {error}\n", 400)
        return Response(content, media_type="application/json")

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


class Certificate:
    """A certificate and its key, in a context that takes them again when their files change.

    Raises ValueError, which names the file, if they cannot be used at the start.
    """

    def __init__(self, certificate: Path | None, key: Path | None) -> None:
        if certificate is None:
            raise ValueError("--ssl-certfile is needed: an API server asks over https alone")
        self._certificate, self._key = certificate, key
        self._content = self._read()
        self.context = server_context(certificate, key)

    def renew(self) -> None:
        """Take changed files; connections made before keep what they have. A pair that cannot be
        used is logged, and tried again the next time."""
        try:
            content = self._read()
            if content == self._content:
                return
            server_context(self._certificate, self._key)  # the pair fits before it is taken
            self.context.load_cert_chain(self._certificate, self._key, password="")
        except (OSError, ValueError) as error:
            logger.warning("the certificate stays as it was: %s", error)
            return
        self._content = content
        logger.info("%s: the renewed certificate is in use", self._certificate)

    def _read(self) -> tuple[bytes, ...]:
        """Raises ValueError."""
        try:
            return tuple(
                file.read_bytes() for file in (self._certificate, self._key) if file is not None
            )
        except OSError as error:
            raise ValueError(f"{error.filename}: cannot be read: {error.strerror}") from None
