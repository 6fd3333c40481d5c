"""Prefix cache: from cause to remedy."""

from dashboards.kit.frame import Row
from dashboards.kit.tables import note

_ADVICE = """
| misses are mostly | it means | do |
|---|---|---|
| cold | prompts are new, or differ early | put what varies (date, user) at the end of the prompt; \
otherwise nothing helps |
| evicted, unreachable | they were here, and had to go | more KV memory, fewer sequences at once, \
prefix-aware routing over replicas |
| partial | prompts are short against a block | smaller `--block-size` |
| forgotten, or of unknown cause | they were seen too long ago for the exporter to remember, or it \
lost events | judge by evictions and hits |
| *low after a preemption* | active requests take the cache's room | relieve the pool first |
"""


def row() -> Row:
    return Row(500, "What to do?", [note(501, "From cause to remedy", _ADVICE, height=7)])
