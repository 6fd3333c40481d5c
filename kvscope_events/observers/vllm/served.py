"""The model that a vLLM process works for, and its engine among those of the server.

The scheduler and its workers report both identically: that is how their streams are matched.
"""

import sys
from typing import Any

from kvscope_events.limits import MAX_LABEL


def engine_index(config: Any) -> int:
    """The data-parallel index of the engine that a process belongs to.

    Since 0.14 a dense model's engines all have rank 0, and another field distinguishes them.
    """
    parallel = config.parallel_config
    index = getattr(parallel, "data_parallel_index", None)
    if index is None:
        index = getattr(parallel, "data_parallel_rank", 0)
    return int(index or 0)


def served_name(config: Any) -> str:
    """The name under which the model is served: the first, where there are several."""
    model = config.model_config
    name = getattr(model, "served_model_name", None)
    if isinstance(name, (list, tuple)):
        name = name[0] if name else None
    return str(name or model.model)[:MAX_LABEL]


def server_version() -> str:
    """vLLM's version; it is loaded by now."""
    return str(getattr(sys.modules.get("vllm"), "__version__", "unknown"))[:MAX_LABEL]
