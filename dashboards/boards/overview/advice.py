"""Overview: the adviser's proposals, and from symptom to remedy."""

from grafana_foundation_sdk.models import units

from dashboards.kit.frame import Row
from dashboards.kit.links import KV_POOL, to_engine_of_row
from dashboards.kit.panels import TOKENS_PER_SECOND, Q
from dashboards.kit.queries import BY_ENGINE, series, worst
from dashboards.kit.tables import Column, note, rows

_ADVICE = """
| you see | it means | do |
|---|---|---|
| pool red, **recomputed** tokens rising | running sequences need more blocks than there are | add \
replicas; more KV memory (`--kv-cache-memory-bytes`, `--gpu-memory-utilization`); lower \
`--max-num-seqs` |
| pool low, requests waiting | the batch is full, not the pool | raise `--max-num-seqs` or \
`--max-num-batched-tokens` |
| pool *resident* full, *active* low | the cache fills idle memory: as it should be | nothing |
| hit ratio fell, or tokens **regretted** | prompts changed, or the cache became too small | \
**Prefix cache**: the curve says whether more memory helps |
| GPU room red | the next large step runs out of memory | **Memory**: who grew? Lower \
`--gpu-memory-utilization`, or move the other process |
| work, but no step | the engine hangs | `/health`, the log, restart |

SGLang's options are `--mem-fraction-static`, `--max-total-tokens`, `--max-running-requests` and \
`--chunked-prefill-size`; against retractions, its word for preemptions, it has \
`--schedule-conservativeness` as well.
"""


def row() -> Row:
    by = f"{BY_ENGINE}, option"
    return Row(
        500,
        "What to do?",
        [
            rows(
                502,
                "What the adviser proposes",
                "At most five proposals for each engine: an option of its server, the value it "
                "should have, and an estimate of the prompt tokens a second that this would spare "
                "it. Begin with the largest. For each, `kvscope advise URL` prints the reason, the "
                "memory it costs, and its assumptions.",
                Q(worst(series("kvscope_advice_value"), by), "value"),
                Q(worst(series("kvscope_advice_saved_tokens_per_second"), by), "saved"),
                columns={
                    "model_name": Column("Model", link=to_engine_of_row("KV pool", KV_POOL)),
                    "instance": Column("Server"),
                    "engine": Column("Engine", width=65),
                    "option": Column("Option"),
                    "value": Column("Proposed", units.Number),
                    "saved": Column("Saves about", TOKENS_PER_SECOND),
                },
                height=6,
                when_absent="No proposals: the sizes fit the load, or too little is known; kvscope "
                "advise says which.",
                worst_first=("Saves about",),
            ),
            note(501, "From symptom to remedy", _ADVICE, height=10),
        ],
    )
