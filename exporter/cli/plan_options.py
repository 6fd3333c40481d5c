"""Options of `kvscope plan`."""

from pathlib import Path
from typing import Annotated

import typer

_MODEL = "Model"
_DEVICE = "Memory"
_SERVING = "Serving"
_OUTPUT = "Output"

Checkpoint = Annotated[str | None, typer.Argument(metavar="[MODEL]", help="The same as --model.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="Folder of a checkpoint, its config.json, or a name on the Hugging Face hub.",
        rich_help_panel=_MODEL,
    ),
]
Layers = Annotated[
    int | None,
    typer.Option(
        min=1, help="Number of layers. Default: the checkpoint's.", rich_help_panel=_MODEL
    ),
]
KvHeads = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="K and V heads per layer. Default: the checkpoint's.",
        rich_help_panel=_MODEL,
    ),
]
HeadDim = Annotated[
    int | None,
    typer.Option(
        min=1, help="Elements per head. Default: the checkpoint's.", rich_help_panel=_MODEL
    ),
]
Params = Annotated[
    float | None,
    typer.Option(
        min=1,
        help="Number of weights, such as 8030261248 or 8.03e9. Default: the checkpoint's.",
        rich_help_panel=_MODEL,
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        help="Type of the weights: fp32, bf16, fp16, fp8, int8, int4, or auto: as stored, "
        "bf16 where that is unknown.",
        rich_help_panel=_MODEL,
    ),
]
KvCacheDtype = Annotated[
    str,
    typer.Option(
        "--kv-cache-dtype",
        "--kv-dtype",
        help="Type of K and V, as above; auto: that of the weights, bf16 if those are quantized.",
        rich_help_panel=_MODEL,
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(help="Name of a GPU: H200, A100-80GB, L40S ...", rich_help_panel=_DEVICE),
]
GpuMemory = Annotated[
    str | None,
    typer.Option(
        help="Memory of the GPU, instead of --gpu: 141GB, 139.8GiB.", rich_help_panel=_DEVICE
    ),
]
GpuMemoryUtilization = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=1.0,
        help="Share of the total memory to use, as in vLLM.",
        rich_help_panel=_DEVICE,
    ),
]
OtherMemory = Annotated[
    str,
    typer.Option(
        help="Memory for the CUDA context, libraries and CUDA graphs.", rich_help_panel=_DEVICE
    ),
]
ActivationMemory = Annotated[
    str | None,
    typer.Option(
        help="Measured peak of the activations. Default: an estimate.", rich_help_panel=_DEVICE
    ),
]
KvCacheMemoryBytes = Annotated[
    str | None,
    typer.Option(help="Size of the pool, instead of a GPU.", rich_help_panel=_DEVICE),
]
HostMemory = Annotated[
    str | None,
    typer.Option(
        help="Free memory of a machine without a GPU; the pool is sized as by kvscope serve.",
        rich_help_panel=_DEVICE,
    ),
]
BlockSize = Annotated[int, typer.Option(min=1, help="Tokens per block.", rich_help_panel=_SERVING)]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens of the longest sequence. Default: the model's limit.",
        rich_help_panel=_SERVING,
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(
        "--concurrency",
        "--max-num-seqs",
        min=1,
        help="Sequences running at once.",
        rich_help_panel=_SERVING,
    ),
]
MaxNumBatchedTokens = Annotated[
    int,
    typer.Option(
        min=1, help="Tokens computed in a step, with chunked prefill.", rich_help_panel=_SERVING
    ),
]
WindowAware = Annotated[
    bool,
    typer.Option(
        "--window-aware",
        help="Count only the window of sliding layers, as vLLM's hybrid manager keeps it.",
        rich_help_panel=_SERVING,
    ),
]
OutputJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=_OUTPUT)
]
Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Draw the plan to a .png, .svg or .pdf as well.",
        rich_help_panel=_OUTPUT,
    ),
]
