"""Engines and their sidecar as the processes that an operator starts."""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.support.pages import events_seen, folded, sample
from tests.support.process import Process, forked_kvscope
from tests.support.waiting import wait_for

SETTLE_SECONDS = 20.0


@dataclass
class Watched:
    """A `kvscope engine serve` that publishes its events."""

    name: str
    endpoint: str
    stack: ExitStack = field(default_factory=ExitStack)
    process: Process | None = None
    url: str = ""

    def start(self, *options: str) -> None:
        """Start or restart it, and wait until it takes requests."""
        self.stack = ExitStack()
        self.process = self.stack.enter_context(
            forked_kvscope(
                *("engine", "serve", "--port", "0", "--served-model-name", self.name, "--no-gpu"),
                *("--event-endpoint", self.endpoint, "--max-model-len", "512"),
                *("--num-gpu-blocks-override", "160", "--max-num-seqs", "16", *options),
            )
        )
        self.url = self.process.find(r"serving \S+ at (http://\S+?)/v1")

    def kill(self) -> None:
        """End it without a chance to say so."""
        assert self.process is not None
        self.process.send(signal.SIGKILL)
        self.process.wait()
        self.stack.close()

    def page(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=10).text

    def complete(self, prompt: str, **body: object) -> None:
        """One completion; fails unless it is answered."""
        answer = httpx.post(
            f"{self.url}/v1/completions",
            json={"prompt": prompt, "max_tokens": 24, "ignore_eos": True, **body},
            timeout=60,
        )
        assert answer.status_code == 200, answer.text


@dataclass
class SidecarProcess:
    """A `kvscope sidecar` over them."""

    process: Process
    url: str

    def page(self, name: str) -> str:
        answer = httpx.get(f"{self.url}/scrape", params={"target": name}, timeout=40)
        assert answer.status_code == 200, answer.text
        return answer.text

    def value(self, server: str, metric: str, **labels: str) -> float | None:
        return sample(self.page(server), metric, **labels)


@contextmanager
def sidecar(*servers: Watched, options: tuple[str, ...] = ()) -> Iterator[SidecarProcess]:
    """A sidecar of these servers, each under its name."""
    events = [option for s in servers for option in ("--events", f"{s.name}={s.endpoint}")]
    with forked_kvscope("sidecar", "--port", "0", "--no-gpu", *events, *options) as process:
        url = process.find(r"(http://[\d.]+:\d+)")
        wait_for(lambda: _answers(url), "the sidecar answers")
        yield SidecarProcess(process, url)


@contextmanager
def watched(folder: Path, *names: str, options: tuple[str, ...] = ()) -> Iterator[list[Watched]]:
    """Servers by these names, started with these options, ended afterwards."""
    folder.chmod(0o700)
    servers = [Watched(name, f"ipc://{folder}/{name}.sock") for name in names]
    try:
        with ThreadPoolExecutor(len(servers)) as pool:  # each imports torch: seconds
            list(pool.map(lambda server: server.start(*options), servers))
        yield servers
    finally:
        for server in servers:
            server.stack.close()


def same_step(server: Watched, beside: SidecarProcess) -> tuple[str, str] | None:
    """The engine's page and the sidecar's, of one step; None: the engine moved on meanwhile."""
    theirs = beside.page(server.name)
    ours = server.page()
    return (ours, theirs) if events_seen(ours) == events_seen(theirs) else None


def assert_equal(server: Watched, beside: SidecarProcess) -> None:
    """Wait until both pages speak of the same step; then every folded line must be the same."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while (pages := same_step(server, beside)) is None:
        assert time.monotonic() < deadline, "the sidecar never caught up"
        time.sleep(0.05)
    ours, theirs = map(folded, pages)
    assert len(ours) > 100
    assert theirs == ours


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
