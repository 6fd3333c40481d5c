"""Options of `kvscope serve` that configure the engine, named as vLLM's where vLLM has them."""

from enum import StrEnum
from typing import Annotated

import typer

from engine.config import DEFAULT_MAX_NUM_BATCHED_TOKENS, DEFAULT_SWAP_SPACE_GIB


class DtypeName(StrEnum):
    """Values of --dtype."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class DeviceName(StrEnum):
    """Values of --device."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class AttentionName(StrEnum):
    """Values of --attention-backend."""

    AUTO = "auto"
    TORCH = "torch"
    TRITON = "triton"
    CPU = "cpu"


class KvCacheDtypeName(StrEnum):
    """Values of --kv-cache-dtype."""

    AUTO = "auto"
    FP8 = "fp8"


class PreemptionModeName(StrEnum):
    """Values of --preemption-mode."""

    RECOMPUTE = "recompute"
    SWAP = "swap"
    AUTO = "auto"


class PolicyName(StrEnum):
    """Values of --scheduling-policy."""

    FCFS = "fcfs"
    PRIORITY = "priority"


Checkpoint = Annotated[str | None, typer.Argument(metavar="MODEL", help="The same as --model.")]
Model = Annotated[
    str,
    typer.Option(
        metavar="MODEL",
        help="Folder of a Hugging Face checkpoint (safetensors), a name on the hub, or 'demo': a "
        "small random model made on the spot.",
    ),
]
ServedModelName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name in the API and in metrics. Default: that of --model."),
]
Dtype = Annotated[
    DtypeName,
    typer.Option(help="Type of weights and activations; auto: the checkpoint's own."),
]
Device = Annotated[
    DeviceName, typer.Option(help="Device to run on; auto: CUDA where there is one.")
]
AttentionBackend = Annotated[
    AttentionName,
    typer.Option(
        metavar="BACKEND",
        help="Attention by triton (CUDA), cpu (a C kernel) or torch; auto: the first that can run.",
    ),
]
EnforceEager = Annotated[
    bool,
    typer.Option(
        "--enforce-eager/--no-enforce-eager",
        help="Do not capture decode steps as CUDA graphs.",
    ),
]
KvCacheDtype = Annotated[
    KvCacheDtypeName,
    typer.Option(help="Type of K and V in the pool; auto: the model's; fp8: e4m3."),
]
Seed = Annotated[
    int,
    typer.Option(
        metavar="INT",
        min=0,
        max=2**63 - 1,
        help="Seed for requests without one, and for the demo model's weights.",
    ),
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS",
        min=1,
        help="Prompt and output tokens of a sequence. Default: the model's limit.",
    ),
]
BlockSize = Annotated[int, typer.Option(metavar="TOKENS", min=1, help="Tokens per block.")]
NumBlocks = Annotated[
    int | None,
    typer.Option(
        metavar="BLOCKS",
        min=1,
        help="Blocks in the pool, also on a CPU. Wins over --kv-cache-memory-bytes.",
    ),
]
PoolBytes = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        min=1,
        help="Bytes for the pool. Default on CUDA: measured; on a CPU: a quarter of the free "
        "memory, at most what --max-num-seqs sequences of full length need.",
    ),
]
MemoryUtilization = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        min=0.01,
        max=1.0,
        help="On CUDA: share of the device's total memory for weights, activations and pool.",
    ),
]
PrefixCaching = Annotated[
    bool,
    typer.Option(help="Keep the KV of finished prefixes for later requests."),
]
MaxNumSeqs = Annotated[
    int,
    typer.Option(metavar="SEQUENCES", min=1, help="Sequences running at once."),
]
MaxNumBatchedTokens = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS",
        min=1,
        help=f"Tokens computed in a step. Default: {DEFAULT_MAX_NUM_BATCHED_TOKENS}; without "
        "chunked prefill at least --max-model-len.",
    ),
]
ChunkedPrefill = Annotated[bool, typer.Option(help="Split long prompts over several steps.")]
Policy = Annotated[
    PolicyName,
    typer.Option(
        help="fcfs: in order of arrival; priority: lower numbers first, then arrival.",
    ),
]
PriorityAging = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0.0,
        help="With --scheduling-policy priority: waiting that makes up for one class, so that no "
        "request starves; 0: none does.",
    ),
]
PreemptionMode = Annotated[
    PreemptionModeName,
    typer.Option(
        help="What becomes of the KV of a request that is preempted for want of blocks: recompute: "
        "dropped; swap: copied to the host and back; auto: what is estimated to take less time.",
    ),
]
SwapSpace = Annotated[
    float | None,
    typer.Option(
        metavar="GIB",
        min=0.0,
        help=f"Host memory for swapped requests. Default: {DEFAULT_SWAP_SPACE_GIB:g}, or 0 with "
        "--preemption-mode recompute.",
    ),
]
MaxClientRequests = Annotated[
    int | None,
    typer.Option(
        metavar="REQUESTS",
        min=1,
        help="Requests that one client, by key or address, may have under way; further ones are "
        "answered with 429.",
    ),
]
MaxClientTokens = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS",
        min=1,
        help="Tokens, prompts and answers together, that the requests of one client may take.",
    ),
]
MaxNumQueued = Annotated[
    int,
    typer.Option(
        metavar="REQUESTS",
        min=1,
        help="Requests that may wait; further ones are answered with 429.",
    ),
]
StallSeconds = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0.1,
        help="Seconds without a finished step, while there is work, until /health answers 503.",
    ),
]
