"""The facts of a running server that a plan begins with: from its metrics, and its list of models.

A vLLM's own page serves, and a kvscope's, which knows the GPUs as well. What neither says is None.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

import httpx

from kvscope.answer_document import Connection
from kvscope.doctor.scrape import TIMEOUT_SECONDS, ScrapedPage, scrape
from kvscope_exporter.fetch.error import FetchError
from kvscope_exporter.fetch.fetch import Fetcher

_MAX_MODELS_BYTES = 1 << 20
_CONFIGURATION = "vllm:cache_config_info"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """Each field is the option of `kvscope plan` with its name."""

    model: str | None = None
    gpu: str | None = None
    gpu_memory_utilization: float | None = None
    block_size: int | None = None
    max_model_len: int | None = None
    kv_cache_dtype: str | None = None

    @property
    def known(self) -> dict[str, object]:
        """The facts that the server states, by option."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}


def running(url: str, connection: Connection = Connection(), *, gpu: bool = True) -> RunningServer:
    """The facts of the server at a base URL; gpu: whether its GPU is one of them.

    Raises AnswerError if it has no page, ValueError if the page is of no inference server, of
    several models or of GPUs that differ.
    """
    base = url.rstrip("/").removesuffix("/metrics")
    with connection.client(base) as client:
        page = scrape(client, f"{base}/metrics")
        listed = _listed(client, base)
    names = {
        labels["model_name"]
        for samples in page.by_name.values()
        for labels, _ in samples
        if labels.get("model_name")
    }
    if not names:
        raise ValueError(f"{base}/metrics names no model: it is the page of no inference server")
    if len(names) > 1:
        raise ValueError(
            f"{base}/metrics is of several models, {', '.join(sorted(names))}: give the page of one"
        )
    configuration = next((labels for labels, _ in page.samples(_CONFIGURATION)), {})
    root, longest = listed.get("root"), listed.get("max_model_len")
    dtype = configuration.get("cache_dtype")
    block_size = _number(configuration.get("block_size"))
    sizes = [value for _, value in page.samples("kvscope_kv_block_size_tokens")]
    return RunningServer(
        model=root if isinstance(root, str) and root else names.pop(),
        gpu=_gpu(page, base) if gpu else None,
        gpu_memory_utilization=_number(configuration.get("gpu_memory_utilization")),
        block_size=_whole(block_size or next(iter(sizes), None)),
        max_model_len=longest if isinstance(longest, int) else _longest(page, configuration),
        kv_cache_dtype=None if dtype in (None, "auto", "None") else dtype,
    )


def _listed(client: httpx.Client, base: str) -> dict[str, object]:
    """The first of the models that the server lists; empty: it lists none, as a sidecar."""
    url = f"{base}/v1/models"
    fetcher = Fetcher(client, url, headers={}, max_bytes=_MAX_MODELS_BYTES)
    try:
        first = json.loads(fetcher.fetch(TIMEOUT_SECONDS).body)["data"][0]
    except (FetchError, ValueError, KeyError, IndexError, TypeError):
        return {}
    return first if isinstance(first, dict) else {}


def _gpu(page: ScrapedPage, base: str) -> str | None:
    """The name that all GPUs of the page have."""
    names = {labels["name"] for labels, _ in page.samples("kvscope_gpu_info")}
    if len(names) > 1:
        raise ValueError(
            f"{base}/metrics has different GPUs, {', '.join(sorted(names))}: name one with --gpu"
        )
    return names.pop() if names else None


def _longest(page: ScrapedPage, configuration: Mapping[str, str]) -> int | None:
    """Tokens of the longest sequence, as a pool's tokens over the sequences that it holds: up to
    the end of its last block. None where one of them is a bound, as read from another page."""
    tokens = _number(configuration.get("kv_cache_size_tokens"))
    sequences = _number(configuration.get("kv_cache_max_concurrency"))
    is_observed = page.value("kvscope_kv_ledger_imbalance_blocks") is not None
    if (tokens is None or sequences is None) and is_observed:
        tokens = page.value("kvscope_kv_usable_tokens")
        sequences = page.value("kvscope_kv_full_length_sequences")
    return _whole(tokens / sequences) if tokens and sequences else None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
