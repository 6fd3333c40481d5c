"""Limits of a listener: how long it waits for clients, and how many it serves at once."""

import math
import os
import resource
from dataclasses import dataclass

FILES = 65_536
"""Open files that a command requests; the soft limit of a shell is 1024."""
FEWEST_CONNECTIONS = 4
"""Connections of a listener, however few files the process may open."""
_SHARE_OF_FILES = 3
"""A listener may take a third of the remaining files: there are at most two, and the model, event
sockets and GPUs need some as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Configuration of one listener; times in seconds."""

    header_seconds: float = 10.0
    """From a new connection, or the last answer on it, to the end of a request's header. A TLS
    handshake may take as long. Prometheus keeps a connection for the next scrape, or opens one."""
    body_seconds: float = 60.0
    """From the header of a request to the end of its body; 8 MiB at 1.2 Mbit/s."""
    write_seconds: float = 20.0
    """Time in which a client must read a full connection buffer, about 64 KiB."""
    max_connections: int = 1024
    """Maximum connections; beyond it, those that wait for their client are closed, oldest first."""

    def __post_init__(self) -> None:
        times = (self.header_seconds, self.body_seconds, self.write_seconds)
        if not all(0 < seconds < math.inf for seconds in times):
            raise ValueError(f"times must be positive and finite, got {times}")
        if self.max_connections < FEWEST_CONNECTIONS:
            raise ValueError(
                f"max_connections must be {FEWEST_CONNECTIONS} or more, got {self.max_connections}"
            )

    def seconds(self, wait: str) -> float:
        """Time that a client may take: for its `header`, its `body`, or to `read`."""
        match wait:
            case "header":
                return self.header_seconds
            case "body":
                return self.body_seconds
            case "read":
                return self.write_seconds
        return math.inf

    @property
    def room(self) -> int:
        """Connections of this listener, even if few files may be opened."""
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        left = allowed - len(os.listdir("/proc/self/fd"))
        return max(FEWEST_CONNECTIONS, min(self.max_connections, left // _SHARE_OF_FILES))


def allow_files() -> None:
    """Raise the soft limit of open files towards the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))
