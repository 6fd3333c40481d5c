"""Fifty servers of which three are real: the others show the pages of those a little later.

What they show was measured, with its own name, pod, card and clock; eight of them are twins of the
engine on the card, so what befalls it befalls them in turn. In the incident one falls silent,
and a different one starts again. A Prometheus of their own scrapes them, with the same rules.
"""

import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.fakes.nvml.states import UUID
from tests.support.waiting import wait_for

SERVERS = 50
SICK = 8
"""Twins of the engine on the card, the first ones."""
SILENT, RESTARTED = SERVERS - 1, SERVERS - 2
SCRAPE_SECONDS = 5
READ_SECONDS = 2.0
LATEST_SECONDS = 24.0
"""Delay of the last of them behind its original."""
_CARD = UUID.format(0)
_MOMENT = re.compile(rb"^(\w+_timestamp_seconds\S*|process_start_time_seconds) (\S+)$", re.M)


@dataclass
class Many:
    """Pages of the last half minute, and who does not answer."""

    originals: Sequence[str]
    """Addresses of the real ones, that on the card first."""
    pages: list[deque[tuple[float, bytes]]] = field(default_factory=list)
    silent: set[int] = field(default_factory=set)
    started: dict[int, float] = field(default_factory=dict)
    """When the process of a server began, if not with its original's."""

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
        pages = self.pages[_original(number, len(self.originals))]
        late = LATEST_SECONDS * ((number * 7) % SERVERS) / SERVERS
        then = time.monotonic() - late
        shown = next((page for at, page in reversed(list(pages)) if at <= then), None)
        if shown is None or number in self.silent:
            return None

        def moved(found: "re.Match[bytes]") -> bytes:
            name, value = found[1], float(found[2])
            if number in self.started and name.startswith(b"process_start"):
                return b"%s %.3f" % (name, self.started[number])
            return b"%s %.3f" % (name, value + late)

        card = UUID.format(100 + number).encode()
        return _MOMENT.sub(moved, shown).replace(_CARD.encode(), card)

    def misfortunes(self, share: float) -> None:
        """By how much of the incident is over."""
        if share >= 0.4:
            self.silent.add(SILENT)
        if 0.5 <= share < 0.6:
            self.silent.add(RESTARTED)
        elif share >= 0.6:
            self.silent.discard(RESTARTED)
            self.started.setdefault(RESTARTED, time.time())


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

    many.read()
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server, ExitStack() as after:
        for name, work in (("many", server.serve_forever), ("originals", read)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            after.callback(thread.join, 20)
        after.callback(server.shutdown)
        after.callback(ended.set)
        wait_for(lambda: all(many.pages), "the originals answer", 20)
        yield f"127.0.0.1:{server.server_port}"


def scrape_instead(configuration: Path, address: str) -> None:
    """Changes a configuration of Prometheus to scrape these fifty, more seldom."""
    config = yaml.safe_load(configuration.read_text())
    interval = f"{SCRAPE_SECONDS}s"
    config["global"] = {
        **{"scrape_interval": interval, "scrape_timeout": interval},
        "evaluation_interval": interval,
    }
    config["scrape_configs"] = [{"job_name": "kvscope", "static_configs": targets(address)}]
    configuration.write_text(yaml.safe_dump(config))


def _original(number: int, originals: int) -> int:
    return 0 if number < SICK else 1 + number % (originals - 1)
