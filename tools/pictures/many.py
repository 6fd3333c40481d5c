"""Fifty servers of which three are real: the others show the pages of those a little later.

What they show was measured, with its own name, pod, card and clock; eight of them are twins of the
engine on the card, so what befalls it befalls them in turn. A Prometheus of their own scrapes them,
with the same rules.
"""

import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from tests.fakes.nvml.states import UUID
from tests.support.waiting import wait_for

SERVERS = 50
SICK = 8
"""Twins of the engine on the card, the first ones."""
LOST = SERVERS - 1
SCRAPE_SECONDS = 5
READ_SECONDS = 2.0
LATEST_SECONDS = 24.0
"""Delay of the last of them behind its original."""
_CARD = UUID.format(0).encode()
_MOMENT = re.compile(rb"^(\w+_timestamp_seconds\S*|process_start_time_seconds) (\S+)$", re.M)


@dataclass
class Many:
    """Pages of the last half minute."""

    originals: Sequence[str]
    """Addresses of the real ones, that on the card first."""
    has_lost_one: bool = False
    """One of the fifty does not answer."""
    pages: list[deque[tuple[float, bytes]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        kept = round(LATEST_SECONDS / READ_SECONDS) + 5
        self.pages = [deque(maxlen=kept) for _ in self.originals]

    def read(self) -> None:
        """All originals once."""
        for address, pages in zip(self.originals, self.pages, strict=True):
            answer = httpx.get(f"{address}/metrics", timeout=10)
            pages.append((time.monotonic(), answer.content))

    def page(self, number: int) -> bytes | None:
        """The present page of server `number`; None: it does not answer."""
        pages = self.pages[0 if number < SICK else 1 + number % (len(self.originals) - 1)]
        late = LATEST_SECONDS * ((number * 7) % SERVERS) / SERVERS
        then = time.monotonic() - late
        shown = next((page for at, page in reversed(list(pages)) if at <= then), None)
        if shown is None or (self.has_lost_one and number == LOST):
            return None
        moved = _MOMENT.sub(lambda found: b"%s %.3f" % (found[1], float(found[2]) + late), shown)
        return moved.replace(_CARD, UUID.format(100 + number).encode())


def targets(address: str) -> list[dict[str, Any]]:
    """Their static configuration. address: where all of them answer."""
    return [
        {
            "targets": [address],
            "labels": {
                "__metrics_path__": f"/{number}/metrics",
                "instance": f"node-{number:02}:8000",
                "cluster": "west" if number % 3 else "east",
                "namespace": "serving",
                "pod": f"engine-{number:02}",
            },
        }
        for number in range(SERVERS)
    ]


@contextmanager
def serving(many: Many) -> Iterator[str]:
    """The address where they answer, until the block ends."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = many.page(int(self.path.split("/")[1]))
            self.send_response(503 if page is None else 200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            with suppress(BrokenPipeError):  # on a busy machine Prometheus gives up sooner
                self.wfile.write(page or b"")

        def log_message(self, format: str, *args: Any) -> None:
            """Not on the terminal."""

    ended = threading.Event()

    def read() -> None:
        while not ended.wait(READ_SECONDS):
            many.read()

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        for work in (server.serve_forever, read):
            threading.Thread(target=work, daemon=True).start()
        wait_for(lambda: all(many.pages), "the originals answer", 20)
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            ended.set()
            server.shutdown()
