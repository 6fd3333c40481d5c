"""Tables: map a server's page to readings, one file for each kind; data without code."""

from collections.abc import Mapping

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.catalogue import metric
from kvscope_exporter.scrape.row import Table
from kvscope_exporter.scrape.tables.dynamo import DYNAMO, DYNAMO_FRONTEND
from kvscope_exporter.scrape.tables.llama_cpp import LLAMA_CPP
from kvscope_exporter.scrape.tables.ray import RAY
from kvscope_exporter.scrape.tables.sglang import SGLANG
from kvscope_exporter.scrape.tables.vllm import VLLM

TABLES: Mapping[ServerKind, tuple[Table, ...]] = {
    "vllm": (VLLM,),
    "sglang": (SGLANG,),
    "ray": (RAY,),
    "dynamo": (DYNAMO, DYNAMO_FRONTEND),
    "llama.cpp": (LLAMA_CPP,),
}
"""By kind of server; each of its tables reads the page, and their series never share labels."""


def front_end_of(kind: ServerKind | None) -> dict[str, frozenset[tuple[str, ...]]]:
    """`Table.front_end` of a kind of server, by the families' names in OpenMetrics; None: of a kind
    that is not known."""
    tables = () if kind is None else TABLES.get(kind, ())
    return {
        metric(name).family: frozenset(series)
        for table in tables
        for name, series in table.front_end.items()
    }
