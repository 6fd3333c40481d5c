"""`kvscope demo`: the demo model under a workload that rises and falls, in one command."""

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated

import httpx
import typer

from kvscope.answer_document import AnswerError
from kvscope.doctor.scrape import ScrapedPage, scrape
from kvscope.options.duration import duration as parser
from kvscope.options.generated import with_options
from kvscope.options.listen import Address, ListenConfig
from kvscope.options.otlp import OtlpOptions
from kvscope.options.telemetry import TelemetryConfig
from kvscope.output import configure_logging
from kvscope.serving.stacks import show_stacks
from kvscope_engine.config import CacheConfig, EngineConfig, ModelConfig

if TYPE_CHECKING:
    from kvscope.serving.run import AppServer

POOL_BLOCKS = 384
"""Few enough that 24 sequences of up to 1,024 tokens cause evictions and preemptions."""
MAX_MODEL_LEN = 1024
MAX_NUM_SEQS = 24
REPORT_SECONDS = 5.0
TICK_SECONDS = 0.1
STOP_SECONDS = 10.0

_BANNER = """
  kvscope demo: a small random model under a workload that comes and goes.

    live      {url}/live    (open it in a browser: it explains itself)
    terminal  kvscope top {url}
    metrics   {url}/metrics
    API       {url}/v1/completions    (model "demo")
    health    {url}/health
    advice    kvscope advise {url}    (after a minute)

  Watch it:   curl -s {url}/metrics | grep kvscope_kv_blocks
  Ctrl-C stops everything.
"""


@with_options
def demo(
    address: Address = Address(),
    duration: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION", parser=parser(1), help="Stop after this time. Default: on Ctrl-C."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the model and of the workload.")] = 0,
    otlp: OtlpOptions = OtlpOptions(),
) -> None:
    """Serve the demo model under load, and show its KV cache at work.

    Example: kvscope demo --duration 1m
    """
    from kvscope.serving.engine import require_engine, run_engine

    configure_logging()
    show_stacks()
    require_engine()
    config = EngineConfig(
        model=ModelConfig(seed=seed),
        cache=CacheConfig(num_gpu_blocks_override=POOL_BLOCKS),
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=512,
    )
    director = _Director(duration, seed)
    try:
        run_engine(
            config,
            ListenConfig(address=address, drain_seconds=2.0, exit_on_failure=True),
            TelemetryConfig(otlp=otlp, acts=True),
            on_ready=director.start,
        )
    finally:
        director.finish()
    if director.output_error is not None:
        raise director.output_error
    if director.failed:
        raise typer.Exit(1)


class _Director:
    """Starts the load once the server takes requests, prints reports, and ends both."""

    def __init__(self, duration: float | None, seed: int) -> None:
        self._duration = duration
        self._seed = seed
        self._thread: threading.Thread | None = None
        self.failed = False
        """Whether the load ended by itself before its time was up."""
        self.output_error: OSError | None = None
        """Error writing to stdout, if any: the viewer has gone."""

    def start(self, url: str, server: "AppServer") -> None:
        """Called on the server's event loop, which a slow reader of our output must not block."""
        self._thread = threading.Thread(
            target=self._direct, args=(url, server), name="demo-director", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _direct(self, url: str, server: "AppServer") -> None:
        command = [
            *(sys.executable, "-P", "-m", "kvscope", "load", "mix", url),
            *("--seed", str(self._seed), "--duration", "86400", "--concurrency", "48"),
            *("--sessions", "24", "--max-tokens", "160", "--ignore-eos"),
        ]
        with (
            subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            ) as load,
            httpx.Client(timeout=5.0) as client,
        ):
            try:
                typer.echo(_BANNER.format(url=url))
                self._watch(client, url, load, server)
            except OSError as error:
                self.output_error = error
            finally:
                load.terminate()  # before the drain: no new request arrives in it
                server.should_exit = True

    def _watch(
        self, client: httpx.Client, url: str, load: subprocess.Popen[bytes], server: "AppServer"
    ) -> None:
        """Report until the time is up, the server stops, or the load has ended."""
        started = time.monotonic()
        reports = 1
        while not server.should_exit:
            elapsed = time.monotonic() - started
            if self._duration is not None and elapsed >= self._duration:
                return
            if load.poll() is not None:
                typer.echo(
                    f"kvscope: the load generator exited early with status {load.returncode}",
                    err=True,
                )
                self.failed = True
                return
            if elapsed >= reports * REPORT_SECONDS:
                reports += 1
                typer.echo(_status(client, url))
            time.sleep(TICK_SECONDS)


def _status(client: httpx.Client, url: str) -> str:
    """One line with the current state."""
    try:
        page = scrape(client, f"{url}/metrics")
    except AnswerError as error:
        return f"  no metrics: {error}"
    return status_line(page)


def status_line(page: ScrapedPage) -> str:
    """A page's pool and requests, in one line. Raises KeyError for a renamed metric."""

    def value(name: str, **labels: str) -> float:
        return page.value(name, **labels) or 0.0  # absent until the first step

    active = value("kvscope_kv_active_ratio")
    resident = value("kvscope_kv_resident_ratio")
    queried = value("kvscope_prefix_cache_queried_tokens_total", phase="first")
    hit = value("kvscope_prefix_cache_hit_tokens_total", phase="first")
    evicted = value("kvscope_kv_block_evictions_total", cause="capacity")
    preempted = value("kvscope_preemptions_total")
    running = value("kvscope_requests", state="running")
    waiting = value("kvscope_requests", state="waiting")
    bar = "█" * round(20 * active) + "▒" * round(20 * (resident - active))
    return (
        f"  {bar:20.20s}  active {active:4.0%}  resident {resident:4.0%}  "
        f"running {running:2.0f}  waiting {waiting:2.0f}  "
        f"hit rate {hit / queried if queried else 0.0:4.0%}  "
        f"evicted {evicted:6.0f}  preempted {preempted:4.0f}"
    )
