"""Facts about the servers that the tests look at."""

import time
from dataclasses import dataclass
from pathlib import Path

import httpx

READS, READ_SECONDS = 6, 0.5


@dataclass
class Stage:
    """A demo under load on a simulated GPU, and an idle server that measured its pool."""

    busy: str
    """Host and port."""
    idle: str
    fleet: str
    """The process that follows both."""
    folder: Path
    """Folder for ordering faults; see stage.py."""

    def pages(self) -> list[str]:
        """Several of each server: some families are absent between two steps."""
        pages = []
        for _ in range(READS):
            pages += [
                httpx.get(f"http://{a}/metrics", timeout=5).text
                for a in (self.busy, self.idle, self.fleet)
            ]
            time.sleep(READ_SECONDS)
        return pages
