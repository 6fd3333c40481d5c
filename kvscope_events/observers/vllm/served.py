"""Which model, and which of a server's engines, a vLLM process works for."""

from typing import Any

from kvscope_events.limits import MAX_LABEL


def engine_index(parallel_config: Any) -> int:
    """The data-parallel index of the engine that a process belongs to.

    Since 0.14 a dense model's engines all have rank 0, and another field tells them apart.
    """
    index = getattr(parallel_config, "data_parallel_index", None)
    if index is None:
        index = parallel_config.data_parallel_rank
    return int(index)


def served_name(model_config: Any) -> str:
    """The name under which the model is served: the first, where there are several."""
    name = getattr(model_config, "served_model_name", None)
    if isinstance(name, (list, tuple)):
        name = name[0] if name else None
    return str(name or model_config.model)[:MAX_LABEL]
