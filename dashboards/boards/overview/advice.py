"""Overview: from symptom to remedy."""

from dashboards.kit.frame import Row
from dashboards.kit.tables import note

_ADVICE = """
| you see | it means | do |
|---|---|---|
| pool red, **recomputed** tokens rising | running sequences need more blocks than there are | add \
replicas; more KV memory (`--kv-cache-memory-bytes`, `--gpu-memory-utilization`); lower \
`--max-num-seqs` |
| pool low, requests waiting | the batch is full, not the pool | raise `--max-num-seqs` or \
`--max-num-batched-tokens` |
| pool *resident* full, *active* low | the cache fills idle memory: as it should be | nothing |
| hit ratio fell | prompts changed, or the cache became too small | **Prefix cache**, misses by \
cause |
| GPU room red | the next large step runs out of memory | **Memory**: who grew? Lower \
`--gpu-memory-utilization`, or move the other process |
| work, but no step | the engine hangs | `/health`, the log, restart |
"""


def row() -> Row:
    return Row(500, "What to do?", [note(501, "From symptom to remedy", _ADVICE, height=8)])
