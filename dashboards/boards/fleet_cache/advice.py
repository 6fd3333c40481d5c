"""Fleet cache: from loss to remedy."""

from dashboards.kit.frame import Row
from dashboards.kit.tables import note

_ADVICE = """
| you see | it means | do |
|---|---|---|
| **routing** is the largest loss | replicas hold what others are asked for | a router that knows \
caches, or one that sends a conversation to the replica that had it; \
`kvscope whatif --replicas N FILE` compares policies on a recording |
| **fetching** is | one prompt lies in pieces on several replicas | after the router: a connector \
that fetches from peers, or a shared tier |
| **capacity** is, and the curve rises early | content was evicted everywhere | a shared tier of \
the size that is *enough*; it costs host memory, not GPUs |
| **capacity** is, and the curve stays flat | pauses are longer than any memory lasts | fewer and \
larger replicas; otherwise nothing |
| **new content** is | prompts are new, or differ early | put what varies at the end of the prompt |
| many duplicates, little lost | common prefixes are on every replica | nothing |
| several sets of names | caches of one model cannot be compared | equal block size, hash \
algorithm and `PYTHONHASHSEED` |

`/api/fleet` and the start page of `kvscope fleet` have the same as proposals, each with its price.
"""


def row() -> Row:
    return Row(600, "What to do?", [note(601, "From loss to remedy", _ADVICE, height=12)])
