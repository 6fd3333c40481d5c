"""Sockets of one server's observers: one for each process, in one directory."""

import os

from kvscope_events.tenants import share_secret
from kvscope_events.wire.run_directory import run_directory, settle_run_directory

DIRECTORY_VARIABLE = "KVSCOPE_OBSERVER_DIR"
REMEDY = f"Set {DIRECTORY_VARIABLE} to another directory"
"""For a directory that is in use, not ours alone, or has too long a path."""
SWITCH_VARIABLE = "KVSCOPE_OBSERVER"
SERVERS = ("vllm", "sglang")
"""Servers that have an observer; the default directory of each has its name."""


def switched_off() -> bool:
    """Whether the operator has disabled the observer."""
    return os.environ.get(SWITCH_VARIABLE, "").strip().lower() in ("off", "0", "false", "no")


def settle() -> list[str]:
    """Have all processes of this server agree on a secret and a folder; returns what is odd."""
    folder = "" if os.environ.get(DIRECTORY_VARIABLE) else settle_run_directory()
    return [odd for odd in (share_secret(), folder) if odd]


def directory(server: str = "vllm") -> str:
    """The folder of the sockets; not created."""
    configured = os.environ.get(DIRECTORY_VARIABLE)
    return os.path.abspath(configured) if configured else os.path.join(run_directory(), server)


def scheduler_endpoint(index: int, server: str = "vllm") -> str:
    """Endpoint of the engine with this data-parallel index."""
    return f"ipc://{directory(server)}/engine-{index}.sock"


def front_end_endpoint(number: int) -> str:
    """Endpoint of an API server: each takes the first that is free."""
    return f"ipc://{directory()}/api-{number}.sock"


def worker_endpoint(index: int, rank: int, server: str = "vllm") -> str:
    """Endpoint of that engine's worker with this rank."""
    return f"ipc://{directory(server)}/engine-{index}-worker-{rank}.sock"
