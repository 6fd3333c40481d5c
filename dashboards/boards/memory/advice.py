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

_COMPONENTS = """
| part | is |
|---|---|
| weights, KV pool | what the server took at its start |
| activations | with buffers in use |
| freed | still used by a stream, or kept by torch for itself |
| CUDA and NCCL | context, kernels, graphs |
| other processes | of this card: `nvidia-smi` names them |
| owner unknown | owned by no visible process: displays, hidden processes |
| this server, unsplit | sums, if the parts are not reported separately |
| driver | firmware, page tables, ECC |
| free | available to every process |
"""


def row() -> Row:
    return Row(
        700,
        "What to do?",
        [
            note(701, "Which one was it?", _ADVICE, span=15, height=12),
            note(702, "What each part is", _COMPONENTS, span=9, height=12),
        ],
    )
