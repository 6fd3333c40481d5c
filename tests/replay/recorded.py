"""Recordings of a real engine under load, and the pages that were served meanwhile."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx

from kvscope_engine.config import CacheConfig
from kvscope_exporter.catalogue import COMPAT_SETS
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder.recorder import Limits, Recorder
from kvscope_exporter.recorder.ring import Ring
from tests.support.server import Server, make_engine_config, serving

OF_THIS_PROCESS = (
    "kvscope_fold_errors_total",
    "kvscope_fold_lag_seconds",
    "kvscope_scrape_duration_seconds",
    "kvscope_collect_errors_total",
    "process_",
    "python_",
    "vllm:http_requests",
    "http_request",
)
"""Families about the exporter's own process, which a replay does not repeat."""


_STARTS = ("", "# HELP ", "# TYPE ")


def make_recorder(
    folder: Path | None, keep_seconds: float = 3600, clock: Clock | None = None
) -> Recorder:
    keep_ns = round(keep_seconds * 1e9)
    return Recorder(
        "llama",
        Ring(keep_ns, folder, "llama"),
        Limits(keep_ns=keep_ns, keep_bytes=1 << 30),
        clock=clock or Clock(),
        compat=sorted(COMPAT_SETS),
        settings={},
    )


def save(recorder: Recorder, path: Path) -> None:
    recorder.rotate()
    path.write_bytes(b"".join(segment.read() for segment in recorder.ring.segments))


def lines_of(page: bytes) -> list[str]:
    """The lines of a page that are about the server."""
    others = tuple(f"{start}{name}" for name in OF_THIS_PROCESS for start in _STARTS)
    return [line for line in page.decode().splitlines() if not line.startswith(others)]


def record_load(path: Path, seconds: float, seed: int, blocks: int = 34) -> list[bytes]:
    """Record a load with hits, evictions, preemptions and aborts; every page served meanwhile."""
    recorder = make_recorder(None)
    config = make_engine_config(cache=CacheConfig(num_gpu_blocks_override=blocks))
    pages: list[bytes] = []
    with serving(config, recorder=recorder) as server:
        ends = time.monotonic() + seconds
        with ThreadPoolExecutor(6) as pool:
            clients = [pool.submit(_client, server, seed + n, ends) for n in range(6)]
            while time.monotonic() < ends:
                pages.append(server.exporter.render()[0])
                recorder.write()
                time.sleep(0.2)
            for client in clients:
                client.result()
        pages.append(server.exporter.render()[0])
    save(recorder, path)
    return pages


def _client(server: Server, seed: int, ends: float) -> None:
    rng = random.Random(seed)
    prefix = [rng.randrange(3, 200) for _ in range(64)]
    with httpx.Client(base_url=server.url, timeout=20) as client:
        while time.monotonic() < ends:
            prompt = prefix[: rng.randrange(8, 64)] + [rng.randrange(3, 200) for _ in range(30)]
            timeout = 0.02 if rng.random() < 0.1 else 20
            body = {"prompt": prompt, "max_tokens": rng.randrange(40, 160), "ignore_eos": True}
            with suppress(httpx.TimeoutException):
                client.post("/v1/completions", json=body, timeout=timeout)
