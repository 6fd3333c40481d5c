"""Ray Serve LLM: vLLM's and SGLang's families through Ray's metrics agent, a page for each node.

An engine is a replica. Ray drops a gauge 20 s after it was last set, which engines do in steps: the
gauges of an idle replica are absent, never 0. Counters begin with their first increment and stay
when their replica has gone. All are up to 10 s late.
"""

from kvscope_exporter.catalogue import metric
from kvscope_exporter.scrape.labels import PassedHistogram
from kvscope_exporter.scrape.row import Identity, Row, Table, Worth
from kvscope_exporter.scrape.tables.sglang import SGLANG_ROWS
from kvscope_exporter.scrape.tables.vllm import VLLM_ROWS

_MIDPOINTS = "the sum is computed from the midpoints of Ray's buckets"
_IDLE = "absent from 20 s after the engine's last step"
_AT_START = "absent from 20 s after the start: vLLM sets it once"
_LATER = "absent before the first increment, up to 10 s late"
_OF_START = (
    "kvscope_kv_capacity_blocks",
    "kvscope_kv_block_size_tokens",
    "kvscope_kv_usable_blocks",
    "kvscope_kv_usable_tokens",
    "kvscope_kv_full_length_sequences",
)


def _through_ray(row: Row, prefix: str = "ray_") -> Row:
    worth: Worth = row.worth
    if isinstance(row.value, PassedHistogram):
        worth, added = "passed through", _MIDPOINTS
    elif metric(row.family).kind == "counter":
        added = _LATER
    else:
        added = _AT_START if row.family in _OF_START else _IDLE
    reason = f"{added}; {row.reason}" if row.reason else added
    value = row.value.renamed(lambda name: prefix + name)
    return Row(family=row.family, labels=row.labels, value=value, worth=worth, reason=reason)


RAY = Table(
    server="ray",
    rows=(
        *(_through_ray(row) for row in (*VLLM_ROWS, *SGLANG_ROWS)),
        *(_through_ray(row, "ray_serve_") for row in SGLANG_ROWS),
    ),
    identity=Identity(
        engine=("ReplicaId", "replica", "engine"),
        ranks=("pp_rank", "tp_rank"),
        may_be_repeated=False,
    ),
    note="The rows of vLLM and SGLang are read under the names `ray_vllm_…` and `ray_sglang_…`, "
    "SGLang's also as `ray_serve_sglang_…`. An engine is a replica (label `ReplicaId` or "
    "`replica`). Ray drops a gauge 20 s after it was last set, and engines set gauges in steps: "
    "those of an idle replica are absent, and those that are set only once, such as the pool's "
    "size, are absent from 20 s after the start. Counters appear at their first increment, are up "
    "to 10 s late, and remain after their replica has gone. Sums of histograms are computed from "
    "the midpoints of Ray's buckets.",
    is_derived=True,
    absent={
        "kvscope_engine_ready": "counters of a dead replica remain on the page; see "
        "`ray_serve_deployment_replica_healthy`",
    },
)
