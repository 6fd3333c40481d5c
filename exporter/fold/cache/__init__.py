"""The prefix cache's names, kept once for every question about it."""

from exporter.fold.cache.fold import Cache
from exporter.fold.cache.forgotten import Forgotten

__all__ = ["Cache", "Forgotten"]
