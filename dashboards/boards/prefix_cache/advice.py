"""Prefix cache: from cause to remedy."""

from dashboards.kit.frame import Row
from dashboards.kit.tables import note

_ADVICE = """
| you see | it means | do |
|---|---|---|
| regret, and a curve that rises to the right | blocks were here, and had to go | more KV memory: \
as many blocks as *missing blocks* says; fewer sequences at once; prefix-aware routing |
| a curve that is flat around you | memory is not the limit | nothing; the smallest size with the \
same hits leaves the rest to something else |
| misses mostly cold | prompts are new, or differ early | put what varies (date, user) at the end \
of the prompt; otherwise nothing helps |
| misses mostly partial | prompts are short against a block | smaller `--block-size` (SGLang: \
`--page-size`) |
| misses mostly forgotten, or of unknown cause | seen too long ago for the exporter to remember, \
or it lost events | judge by evictions and hits |
| few hits after a preemption | active requests take the cache's room | relieve the pool first |
"""


def row() -> Row:
    return Row(500, "What to do?", [note(501, "From cause to remedy", _ADVICE, height=8)])
