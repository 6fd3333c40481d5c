"""`kvscope demo`: the demo model under a workload that comes and goes, in one command."""

import os
import subprocess
import sys
import threading
import time
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
TICK_SECONDS = 0.1
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
        self._thread: threading.Thread | None = None
        self.failed = False
        """The load ended by itself: there was less to see than promised."""

    def start(self, url: str, server: uvicorn.Server) -> None:
        typer.echo(_BANNER.format(url=url))

        self._thread = threading.Thread(
            target=self._direct, args=(url, server), name="demo-director", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _direct(self, url: str, server: uvicorn.Server) -> None:
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
                self._watch(client, url, load, server)
            finally:
                load.terminate()  # before the server drains: nothing new comes in meanwhile
                server.should_exit = True

    def _watch(
        self, client: httpx.Client, url: str, load: subprocess.Popen[bytes], server: uvicorn.Server
    ) -> None:
        """Report until the time is over, the server is told to stop, or the load has ended."""
        started = time.monotonic()
        reports = 1
        while not server.should_exit:
            elapsed = time.monotonic() - started
            if self._duration is not None and elapsed >= self._duration:
                return
            if load.poll() is not None:
                typer.echo(f"kvscope: the load ended with code {load.returncode}", err=True)
                self.failed = True
                return
            if elapsed >= reports * REPORT_SECONDS:
                reports += 1
                typer.echo(_status(client, url))
            time.sleep(TICK_SECONDS)


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


def _without_our_settings() -> dict[str, str]:
    """The environment for the load: KVSCOPE_PORT and the like were meant for this command."""
    return {name: text for name, text in os.environ.items() if not name.startswith("KVSCOPE_")}
