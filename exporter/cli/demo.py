"""`kvscope demo`: the demo model under a workload that comes and goes, in one command."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Annotated

import httpx
import typer
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from engine.config import CacheConfig, ModelConfig
from exporter.catalogue import COMPAT_SETS
from exporter.cli.server import ListenConfig, configure_logging, require_engine, run

POOL_BLOCKS = 384
"""Small on purpose: with 24 sequences of up to 1,024 tokens it must evict and preempt."""
MAX_MODEL_LEN = 1024
MAX_NUM_SEQS = 24
REPORT_SECONDS = 5.0
STOP_SECONDS = 10.0

_BANNER = """
  kvscope demo: a small random model under a workload that comes and goes.

    metrics   {url}/metrics
    API       {url}/v1/completions    (model "demo")
    health    {url}/health

  Watch it:   curl -s {url}/metrics | grep kvscope_kv_blocks
  Ctrl-C stops everything.
"""


def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    duration: Annotated[
        float | None, typer.Option(min=1, help="Stop after so many seconds. Default: never.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the model and the workload.")] = 0,
) -> None:
    """Serve the demo model, load it, and show what happens to its KV cache.

    Example: kvscope demo --duration 60
    """
    configure_logging()
    require_engine()
    from engine.build import EngineConfig

    config = EngineConfig(
        model=ModelConfig(seed=seed),
        cache=CacheConfig(num_gpu_blocks_override=POOL_BLOCKS),
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=512,
    )
    director = _Director(duration, seed)
    run(
        config,
        ListenConfig(host=host, port=port, drain_seconds=2.0),
        compat=COMPAT_SETS,
        on_ready=director.start,
    )
    director.finish()
    if director.failed:
        raise typer.Exit(1)


class _Director:
    """Starts the load once the server takes requests, reports, and ends both."""

    def __init__(self, duration: float | None, seed: int) -> None:
        self._duration = duration
        self._seed = seed
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.failed = False
        """The load ended by itself: there was less to see than promised."""

    def start(self, url: str, server: uvicorn.Server) -> None:
        typer.echo(_BANNER.format(url=url))

        def stop_serving() -> None:
            server.should_exit = True

        self._thread = threading.Thread(
            target=self._direct, args=(url, stop_serving), name="demo-director", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _direct(self, url: str, stop_serving: Callable[[], None]) -> None:
        ends = None if self._duration is None else time.monotonic() + self._duration
        command = [
            *(sys.executable, "-m", "exporter.cli", "load", "mix", "--url", url),
            *("--seed", str(self._seed), "--duration", "86400", "--concurrency", "48"),
            *("--sessions", "24", "--max-tokens", "160", "--ignore-eos"),
        ]
        with (
            subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=_without_our_settings(),
            ) as load,
            httpx.Client(timeout=5.0) as client,
        ):
            try:
                while not self._over.wait(_until_report(ends)):
                    typer.echo(_status(client, url))
                    if load.poll() is not None:
                        typer.echo(f"kvscope: the load ended with code {load.returncode}", err=True)
                        self.failed = True
                        break
                    if ends is not None and time.monotonic() >= ends:
                        break
            finally:
                load.terminate()
                stop_serving()
                _end(load)


def _until_report(ends: float | None) -> float:
    if ends is None:
        return REPORT_SECONDS
    return min(REPORT_SECONDS, max(0.0, ends - time.monotonic()))


def _without_our_settings() -> dict[str, str]:
    """The environment without what was meant for the demo itself, KVSCOPE_DURATION say."""
    return {k: v for k, v in os.environ.items() if not k.startswith("KVSCOPE_")}


def _end(load: subprocess.Popen[bytes]) -> None:
    """Wait for the load that was told to end; one that does not is killed."""
    try:
        load.wait(STOP_SECONDS / 2)
    except subprocess.TimeoutExpired:
        load.kill()


def _status(client: httpx.Client, url: str) -> str:
    """One line of what the metrics say now."""
    try:
        page = client.get(f"{url}/metrics").text
    except httpx.HTTPError as error:
        return f"  no metrics: {error}"
    values = {
        (sample.name, *sorted(set(sample.labels.values()) - {"demo", "0"})): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith("kvscope_")
    }
    active = values.get(("kvscope_kv_usage_ratio", "active"), 0.0)
    resident = values.get(("kvscope_kv_usage_ratio", "resident"), 0.0)
    queried = values.get(("kvscope_prefix_cache_queried_tokens_total", "first"), 0.0)
    hit = values.get(("kvscope_prefix_cache_hit_tokens_total", "first"), 0.0)
    evicted = values.get(("kvscope_kv_block_evictions_total", "capacity"), 0.0)
    preempted = sum(v for k, v in values.items() if k[0] == "kvscope_preemptions_total")
    running = values.get(("kvscope_requests", "running"), 0.0)
    waiting = values.get(("kvscope_requests", "waiting"), 0.0)
    bar = "█" * round(20 * active) + "▒" * round(20 * (resident - active))
    return (
        f"  {bar:20.20s}  active {active:4.0%}  resident {resident:4.0%}  "
        f"running {running:2.0f}  waiting {waiting:2.0f}  "
        f"hit rate {hit / queried if queried else 0.0:4.0%}  "
        f"evicted {evicted:6.0f}  preempted {preempted:4.0f}"
    )
