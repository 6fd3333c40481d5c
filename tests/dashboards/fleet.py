"""What the tests know of the servers that they look at."""

from dataclasses import dataclass
from pathlib import Path

import httpx


@dataclass
class Stage:
    """A demo under load on a simulated GPU, and an idle server that measured its pool."""

    busy: str
    """Host and port."""
    idle: str
    folder: Path
    """Where faults are ordered; see stage.py."""

    def pages(self) -> list[str]:
        return [httpx.get(f"http://{a}/metrics", timeout=5).text for a in (self.busy, self.idle)]
