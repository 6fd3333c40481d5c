"""Limits of a listener: how long it waits for clients, and how many requests it serves at once."""

import math
import resource
from dataclasses import dataclass

FILES = 65_536
"""Open files that a command requests; the soft limit of a shell is 1024."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Configuration of one listener; times in seconds."""

    idle_seconds: float = 10.0
    """From an answer to the next request on that connection."""
    body_seconds: float = 60.0
    """From the header of a request to the end of its body; 8 MiB at 1.2 Mbit/s."""
    max_requests: int = 1024
    """Requests at once; one in eight is for /health and /metrics alone."""

    def __post_init__(self) -> None:
        if not all(0 < seconds < math.inf for seconds in (self.idle_seconds, self.body_seconds)):
            raise ValueError("times must be positive and finite")
        if self.max_requests < 2:
            raise ValueError(f"max_requests must be 2 or more, got {self.max_requests}")


def allow_files() -> None:
    """Raise the soft limit of open files towards the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))
