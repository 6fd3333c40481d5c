"""Division of a model among GPUs: tensor, pipeline, data and expert parallelism."""

from dataclasses import dataclass

from kvscope_engine.sizing.config_json import ConfigError

MAX_GPUS = 65_536
TIMES = "\u00d7"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """vLLM's options of these names."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    """GPUs of a tensor-parallel group that divide the tokens of each sequence when decoding."""
    experts: bool = False
    """Whole experts on each GPU instead of a slice of every expert."""

    def __post_init__(self) -> None:
        if self.tensor % self.context:
            raise ValueError(
                f"--decode-context-parallel-size {self.context} must divide the "
                f"{self.tensor} GPUs of --tensor-parallel-size"
            )
        if self.gpus > MAX_GPUS:
            raise ValueError(f"{self.gpus:,} GPUs: at most {MAX_GPUS:,} can be planned")

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.data

    @property
    def expert_shards(self) -> int:
        """GPUs that share the experts of a layer: data-parallel ranks are among them."""
        return self.tensor * self.data

    def stages(self, layers: int) -> list[range]:
        """The layers of each pipeline stage. Source: vLLM's get_pp_indices.

        Raises ConfigError if there are more stages than layers.
        """
        if self.pipeline > layers:
            raise ConfigError(f"{layers} layers cannot be divided into {self.pipeline} stages")
        sizes = [layers // self.pipeline] * self.pipeline
        for later in range(2, layers % self.pipeline + 2):
            sizes[-later] += 1
        starts = [sum(sizes[:stage]) for stage in range(self.pipeline)]
        return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]

    def text(self) -> str:
        """TP 8 times PP 2, or one GPU."""
        parts = [
            f"{name} {size}"
            for name, size in (
                *(("TP", self.tensor), ("DCP", self.context)),
                *(("PP", self.pipeline), ("DP", self.data)),
            )
            if size > 1
        ]
        return f" {TIMES} ".join(parts) or "one GPU"


def check_context(parallel: Parallelism, kv_heads: int, windows: bool) -> None:
    """kv_heads: 1 for a latent vector. Raises ConfigError where vLLM cannot divide tokens so."""
    if parallel.context == 1:
        return
    if windows:
        raise ConfigError("vLLM does not divide the tokens of layers with a window: no DCP")
    if parallel.context * kv_heads > parallel.tensor:
        raise ConfigError(
            f"DCP {parallel.context}: tokens are divided among GPUs that would repeat a KV head, "
            f"which are {max(1, parallel.tensor // kv_heads)} of {parallel.tensor} with "
            f"{kv_heads} KV heads"
        )


def check_heads(tensor: int, heads: int, kv_heads: int) -> None:
    """Raises ConfigError for heads that vLLM cannot divide so."""
    if heads % tensor:
        raise ConfigError(f"{heads} attention heads cannot be divided among {tensor} GPUs")
    if kv_heads % tensor and tensor % kv_heads:
        raise ConfigError(f"{kv_heads} KV heads cannot be divided among {tensor} GPUs")
