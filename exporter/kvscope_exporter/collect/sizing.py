"""Families of one process of an engine: its sizes at start-up, and its host memory."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.catalogue.sizing import SIZING_PARTS
from kvscope_exporter.collect.families import Families
from kvscope_exporter.machine.host_memory import HostMemory
from kvscope_exporter.state import Ledger
from kvscope_exporter.state.capacity import longest_sequences, usable_tokens


def collect_host(
    families: Families, host: HostMemory, pinned_bytes: int | None
) -> Iterator[Family]:
    """Only for processes on this host: an engine elsewhere has no such families."""
    for figure, value in (
        ("resident", host.resident),
        ("pinned", pinned_bytes),
        ("limit", host.limit),
        ("usage", host.usage),
        ("unreclaimable", host.unreclaimable),
    ):
        if value is not None:
            yield families.single(f"kvscope_host_memory_{figure}_bytes", value)


def collect_sizing(families: Families, ledger: Ledger, engine: Hello) -> Iterator[Family]:
    """Empty while the state is unknown. Terms that only a newer engine has are left out."""
    if not ledger.known:
        return
    yield from collect_terms(families, ledger.memory_terms)
    tokens, fitting = usable_tokens(ledger), longest_sequences(ledger, engine.max_model_len)
    if tokens is not None:
        yield families.single("kvscope_kv_usable_tokens", tokens)
    if fitting is not None:
        yield families.single("kvscope_kv_full_length_sequences", fitting)


def collect_terms(families: Families, terms: Mapping[str, int]) -> Iterator[Family]:
    """The terms of the pool's size; empty if it was configured, or is not known here."""
    parts = {term: terms[term] for term in SIZING_PARTS if term in terms}
    if parts:
        yield families.column("kvscope_kv_pool_sizing_bytes", parts)
    for term in ("total", "requested"):
        if term in terms:
            yield families.single(f"kvscope_kv_pool_sizing_{term}_bytes", terms[term])
