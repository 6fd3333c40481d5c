"""The model that a vLLM process works for, and its engine among those of the server.

The scheduler and its workers report both identically: that is how their streams are matched.
"""

import socket
import sys
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from kvscope_events.limits import label_of


def engine_index(config: Any) -> int:
    """The data-parallel index of the engine that a process belongs to.

    Since 0.14 a dense model's engines all have rank 0, and another field distinguishes them.
    """
    parallel = config.parallel_config
    index = getattr(parallel, "data_parallel_index", None)
    if index is None:
        index = getattr(parallel, "data_parallel_rank", 0)
    return int(index or 0)


def local_engines(config: Any) -> int | None:
    """The number of data-parallel engines on an API server's host; None: all of them."""
    parallel = config.parallel_config
    here, total = (
        getattr(parallel, name, None) for name in ("data_parallel_size_local", "data_parallel_size")
    )
    return None if here is None or total is None or here >= total else int(here)


def is_remote(config: Any, meet_at: str) -> bool:
    """Whether a worker's host is not that of its engine's scheduler.

    Without Ray that is the first of the engine's hosts; with it the one that has the address where
    the ranks meet. meet_at: its URL.
    """
    parallel = config.parallel_config
    if getattr(parallel, "distributed_executor_backend", None) == "ray":
        return not _is_of_this_host(urlsplit(meet_at).hostname or "")
    return int(getattr(parallel, "node_rank_within_dp", 0)) > 0


def _is_of_this_host(host: str) -> bool:
    """Whether the address is one of this host's own, or none that could be tried."""
    try:
        address = ip_address(host)
    except ValueError:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def served_name(config: Any) -> str:
    """The name under which the model is served: the first, where there are several."""
    model = config.model_config
    name = getattr(model, "served_model_name", None)
    if isinstance(name, (list, tuple)):
        name = name[0] if name else None
    return label_of(name or model.model)


def server_version() -> str:
    """vLLM's version; it is loaded by now."""
    return label_of(getattr(sys.modules.get("vllm"), "__version__", "unknown"))
