"""Keeps an exception in one part from failing the whole page."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from exporter.collect.turns import ScrapeLimiter

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class Guard:
    """Counts errors by group of families."""

    def __init__(self, turns: ScrapeLimiter | None = None) -> None:
        """turns: offered before each part."""
        self._turns = turns
        self.errors: Counter[str] = Counter()

    def read(self, group: str, collect: Callable[[], Iterable[_T]]) -> list[_T]:
        """All families of a part, or its other items; empty if it raises."""
        if self._turns is not None:
            self._turns.offer()
        try:
            return list(collect())
        except Exception:
            if not self.errors[group]:  # once: it will fail at every scrape
                logger.exception("a part of the page, of group %r, failed and is left out", group)
            self.errors[group] += 1
            return []
