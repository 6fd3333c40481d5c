"""Memory: which way of running out was it?"""

from dashboards.kit.frame import Row
from dashboards.kit.tables import note

_ADVICE = """
| it was | how you know | do |
|---|---|---|
| the pool | preemptions, *exhausted in 1 min* near 100 %, no error in the log | \
more KV memory, lower `--max-num-seqs`, replicas |
| the device | `OutOfMemoryError` in the log, *step* in panel *near misses and errors* | lower \
`--gpu-memory-utilization` or `--max-num-batched-tokens` |
| another process | red grew in *Where did the memory go* | move it; a card is for one server |
| fragmentation | *inactive split* is large in torch's allocator | \
`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` |
| the host | exit code 137, `dmesg` says *Out of memory* | raise the container's limit |

SGLang: `--max-running-requests`, `--mem-fraction-static`, `--chunked-prefill-size`.
"""


def row() -> Row:
    return Row(
        700,
        "What to do?",
        [
            note(701, "Which one was it?", _ADVICE, height=11),
        ],
    )
