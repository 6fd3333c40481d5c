"""`/metrics/compact`: only the few signals by which a gateway picks an endpoint.

The model-server protocol of the Gateway API inference extension, in vLLM's names: gauges, one
series for each signal. It is asked 20 times a second, so nothing is drained or collected for it:
the fold thread stores the figures whenever it has folded something.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kvscope_exporter.catalogue import Metric, metric
from kvscope_exporter.state import Folds, Ledger, Requests
from kvscope_exporter.state.capacity import block_tokens

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_WAITING = metric("vllm:num_requests_waiting")
_RUNNING = metric("vllm:num_requests_running")
_USAGE = metric("vllm:kv_cache_usage_perc")
_CONFIGURATION = metric("vllm:cache_config_info")


class Pool(NamedTuple):
    """An engine's pool, in blocks."""

    active: int
    usable: int
    total: int
    block_size: int | None
    """None: blocks of different groups hold different numbers of tokens."""


class Signals(NamedTuple):
    """Signals of one engine; None: not known now."""

    labels: tuple[str, str]
    """model_name and engine."""
    waiting: int | None = None
    running: int | None = None
    """Sequences, each of which vLLM calls a request."""
    pool: Pool | None = None


def signals_of(labels: tuple[str, str], folds: Folds, tells: frozenset[str]) -> Signals:
    """The figures of this moment; the caller holds the folds. Takes microseconds."""
    requests, ledger = folds[Requests], folds[Ledger]
    waiting = running = pool = None
    if requests.known and tells.issuperset(_WAITING.events):
        waiting, running = requests.sequences_waiting, requests.sequences_running
    if ledger.known and _USAGE.is_observable(tells, None) and ledger.num_usable:
        tokens = block_tokens(ledger)
        pool = Pool(ledger.num_active, ledger.num_usable, ledger.num_blocks, tokens)
    return Signals(labels, waiting, running, pool)


def compact_page(engines: Iterable[Signals]) -> bytes:
    """The page of a server: its engines together; of those with the same labels only the first.

    Requests are added up, and usage is that of all pools as one. A signal that one engine lacks is
    left out: without that engine the load would look lower. So are block size and number if block
    sizes differ.
    """
    known: dict[tuple[str, str], Signals] = {}
    for engine in engines:
        known.setdefault(engine.labels, engine)
    text = ""
    waiting = [engine.waiting for engine in known.values() if engine.waiting is not None]
    running = [engine.running for engine in known.values() if engine.running is not None]
    pools = [engine.pool for engine in known.values() if engine.pool is not None]
    if known and len(waiting) == len(known):
        text += _gauge(_WAITING, sum(waiting))
    if known and len(running) == len(known):
        text += _gauge(_RUNNING, sum(running))
    if known and len(pools) == len(known):
        usage = sum(pool.active for pool in pools) / sum(pool.usable for pool in pools)
        text += _gauge(_USAGE, usage)
        if len({pool.block_size for pool in pools}) == 1 and pools[0].block_size is not None:
            blocks = sum(pool.total for pool in pools)
            labels = f'{{block_size="{pools[0].block_size}",num_gpu_blocks="{blocks}"}}'
            text += _gauge(_CONFIGURATION, 1, labels)
    return text.encode()


def _gauge(row: Metric, value: float, labels: str = "") -> str:
    name = row.name
    return f"# HELP {name} {row.help}\n# TYPE {name} gauge\n{name}{labels} {value}\n"
