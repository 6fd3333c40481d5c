"""Where the processes of a vLLM publish: one socket for each engine and for each of its workers."""

import os
from typing import Any

from kvscope_events.limits import MAX_LABEL
from kvscope_events.wire.run_directory import run_directory

DIRECTORY_VARIABLE = "KVSCOPE_OBSERVER_DIR"


def observer_directory() -> str:
    """The folder of the sockets: KVSCOPE_OBSERVER_DIR, else `vllm` in the run directory."""
    configured = os.environ.get(DIRECTORY_VARIABLE)
    return os.path.abspath(configured) if configured else os.path.join(run_directory(), "vllm")


def engine_index(parallel_config: Any) -> int:
    """The data-parallel index of the engine that a process belongs to.

    Since 0.14 a dense model's engines all have rank 0, and another field tells them apart.
    """
    index = getattr(parallel_config, "data_parallel_index", None)
    if index is None:
        index = parallel_config.data_parallel_rank
    return int(index)


def engine_endpoint(index: int) -> str:
    """Where the scheduler of an engine publishes."""
    return f"ipc://{observer_directory()}/engine-{index}.sock"


def worker_endpoint(index: int, rank: int) -> str:
    """Where one of its workers publishes; also where both share a process."""
    return f"ipc://{observer_directory()}/engine-{index}-worker-{rank}.sock"


def served_name(model_config: Any) -> str:
    """The name under which the model is served: the first, where there are several."""
    name = getattr(model_config, "served_model_name", None)
    if isinstance(name, (list, tuple)):
        name = name[0] if name else None
    return str(name or model_config.model)[:MAX_LABEL]
