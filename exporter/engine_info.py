"""What the exporter is told about an engine, because no event says it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """Facts that hold for an engine's life."""

    model_name: str
    """Served name; label of every engine-level family."""
    max_model_len: int
    """Tokens of the longest sequence: the last bound of the token histograms."""
    engine: str = "0"
    """Data-parallel rank as text, as in vLLM; the other label."""
    enable_prefix_caching: bool = True
    """Off: the prefix cache families are absent."""
    cache_dtype: str = "auto"
    """Of K and V."""
    gpu_memory_utilization: float | None = None
    """Share of the device that the pool was sized by; None: it was sized otherwise."""
    prefix_caching_hash_algo: str | None = None
    """Name of the block hash; None: not told."""

    def __post_init__(self) -> None:
        if self.max_model_len <= 0:
            raise ValueError(f"max_model_len must be positive, got {self.max_model_len}")
