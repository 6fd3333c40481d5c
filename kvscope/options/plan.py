"""Options of `kvscope plan`."""

from pathlib import Path
from typing import Annotated

import typer

Checkpoint = Annotated[str | None, typer.Argument(metavar="MODEL", help="The same as --model.")]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Folder of a checkpoint, its config.json, or a name on the Hugging Face hub.",
    ),
]
Layers = Annotated[
    int | None,
    typer.Option(
        metavar="INT",
        min=1,
        help="Number of layers. Default: the checkpoint's.",
    ),
]
KvHeads = Annotated[
    int | None,
    typer.Option(
        metavar="INT",
        min=1,
        help="K and V heads per layer. Default: the checkpoint's.",
    ),
]
HeadDim = Annotated[
    int | None,
    typer.Option(
        metavar="INT",
        min=1,
        help="Elements per head. Default: the checkpoint's.",
    ),
]
Params = Annotated[
    float | None,
    typer.Option(
        metavar="FLOAT",
        min=1,
        help="Number of weights, such as 8030261248 or 8.03e9. Default: the checkpoint's.",
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        metavar="DTYPE",
        help="Type of the weights: fp32, bf16, fp16, fp8, int8, int4, or auto: as stored, "
        "bf16 where that is unknown.",
    ),
]
KvCacheDtype = Annotated[
    str,
    typer.Option(
        "--kv-cache-dtype",
        "--kv-dtype",
        metavar="DTYPE",
        help="Type of K and V, as above; auto: that of the weights, bf16 if those are quantized.",
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name of a GPU: H200, A100-80GB, L40S ..."),
]
GpuMemory = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES",
        help="Memory of the GPU, instead of --gpu: 141GB, 139.8GiB.",
    ),
]
GpuMemoryUtilization = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        min=0.01,
        max=1.0,
        help="Share of the total memory to use, as in vLLM.",
    ),
]
OtherMemory = Annotated[
    str,
    typer.Option(
        metavar="BYTES",
        help="Memory for the CUDA context, libraries and CUDA graphs.",
    ),
]
ActivationMemory = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES",
        help="Measured peak of the activations. Default: an estimate.",
    ),
]
KvCacheMemoryBytes = Annotated[
    str | None,
    typer.Option(metavar="BYTES", help="Size of the pool, instead of a GPU."),
]
HostMemory = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES",
        help="Free memory of a machine without a GPU; the pool is sized as by kvscope serve.",
    ),
]
BlockSize = Annotated[int, typer.Option(metavar="TOKENS", min=1, help="Tokens per block.")]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS",
        min=1,
        help="Tokens of the longest sequence. Default: the model's limit.",
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(
        "--concurrency",
        "--max-num-seqs",
        metavar="SEQUENCES",
        min=1,
        help="Sequences running at once.",
    ),
]
MaxNumBatchedTokens = Annotated[
    int,
    typer.Option(
        metavar="TOKENS",
        min=1,
        help="Tokens computed in a step, with chunked prefill.",
    ),
]
WindowAware = Annotated[
    bool,
    typer.Option(
        "--window-aware",
        help="Count only the window of sliding layers, as vLLM's hybrid manager keeps it.",
    ),
]
OutputJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Draw the plan to a .png, .svg or .pdf as well.",
    ),
]
