"""Keeps a part that raises from taking the page with it."""

import logging
from collections.abc import Callable, Iterable

from prometheus_client.core import Metric as Family

logger = logging.getLogger(__name__)


class Guard:
    """Counts errors by part; every part that was ever read is there, at 0 from its first page."""

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}

    def read(self, part: str, collect: Callable[[], Iterable[Family]]) -> list[Family]:
        """All families of a part, or none of them."""
        self.errors.setdefault(part, 0)
        try:
            return list(collect())
        except Exception:
            if not self.errors[part]:  # it will be as wrong at the next scrape
                logger.exception("part %r of the page failed and is left out", part)
            self.errors[part] += 1
            return []
