"""Sizing families from the ledger, which hears how its pool came about."""

from collections.abc import Iterator
from typing import get_args

from prometheus_client.core import Metric as Family

from kvscope_events.events import SizingTerm
from exporter.collect.families import Families
from exporter.engine_info import EngineInfo
from exporter.fold import Ledger


def collect_sizing(families: Families, ledger: Ledger, engine: EngineInfo) -> Iterator[Family]:
    """Nothing while the state is unknown. Terms of a newer engine are left out."""
    if not ledger.known:
        return
    terms = {t: ledger.memory_terms[t] for t in get_args(SizingTerm) if t in ledger.memory_terms}
    if terms:
        yield families.column("kvscope_kv_pool_sizing_bytes", terms)
    yield families.single("kvscope_kv_capacity_tokens", ledger.num_usable * ledger.block_size)
    needed = -(-engine.max_model_len // ledger.block_size)
    yield families.single("kvscope_kv_full_length_sequences", ledger.num_usable / needed)
