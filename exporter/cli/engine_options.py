"""Options of `kvscope serve` that configure the engine, named as vLLM's where vLLM has them."""

from enum import StrEnum
from typing import Annotated

import typer

from engine.config import DEFAULT_MAX_NUM_BATCHED_TOKENS

_MODEL = "Model"
_POOL = "KV pool"
_SCHEDULER = "Scheduler"


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


class PolicyName(StrEnum):
    """Values of --scheduling-policy."""

    FCFS = "fcfs"
    PRIORITY = "priority"


Checkpoint = Annotated[str | None, typer.Argument(metavar="[MODEL]", help="The same as --model.")]
Model = Annotated[
    str,
    typer.Option(
        help="Folder of a Hugging Face checkpoint (safetensors), a name on the hub, or 'demo': a "
        "small random model made on the spot.",
        rich_help_panel=_MODEL,
    ),
]
ServedModelName = Annotated[
    str | None,
    typer.Option(help="Name in the API and in metrics. Default: --model.", rich_help_panel=_MODEL),
]
Dtype = Annotated[
    DtypeName,
    typer.Option(
        help="Type of weights and KV; auto: the checkpoint's own.", rich_help_panel=_MODEL
    ),
]
Device = Annotated[
    DeviceName, typer.Option(help="auto: CUDA where there is one.", rich_help_panel=_MODEL)
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        max=2**63 - 1,
        help="Seed for requests that bring none, and for the demo model's weights.",
        rich_help_panel=_MODEL,
    ),
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Prompt and output tokens of a sequence. Default: the model's limit.",
        rich_help_panel=_MODEL,
    ),
]
BlockSize = Annotated[int, typer.Option(min=1, help="Tokens per block.", rich_help_panel=_POOL)]
NumBlocks = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Blocks in the pool, also on a CPU. Wins over --kv-cache-memory-bytes.",
        rich_help_panel=_POOL,
    ),
]
PoolBytes = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Bytes for the pool. Default on CUDA: measured; on a CPU: a quarter of the free "
        "memory, at most what --max-num-seqs sequences of full length need.",
        rich_help_panel=_POOL,
    ),
]
MemoryUtilization = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=1.0,
        help="On CUDA: share of the device's total memory for weights, activations and pool.",
        rich_help_panel=_POOL,
    ),
]
PrefixCaching = Annotated[
    bool,
    typer.Option(
        help="Keep the KV of finished prefixes for later requests.", rich_help_panel=_POOL
    ),
]
MaxNumSeqs = Annotated[
    int, typer.Option(min=1, help="Sequences running at once.", rich_help_panel=_SCHEDULER)
]
MaxNumBatchedTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help=f"Tokens computed in a step. Default: {DEFAULT_MAX_NUM_BATCHED_TOKENS}; without "
        "chunked prefill at least --max-model-len.",
        rich_help_panel=_SCHEDULER,
    ),
]
ChunkedPrefill = Annotated[
    bool, typer.Option(help="Split long prompts over several steps.", rich_help_panel=_SCHEDULER)
]
Policy = Annotated[
    PolicyName,
    typer.Option(
        help="fcfs: in order of arrival; priority: lower numbers first, then arrival.",
        rich_help_panel=_SCHEDULER,
    ),
]
MaxNumQueued = Annotated[
    int,
    typer.Option(
        min=1,
        help="Requests that may wait; further ones are answered with 429.",
        rich_help_panel=_SCHEDULER,
    ),
]
StallSeconds = Annotated[
    float,
    typer.Option(
        min=0.1,
        help="Seconds without a finished step, while there is work, until /health answers 503.",
        rich_help_panel=_SCHEDULER,
    ),
]
