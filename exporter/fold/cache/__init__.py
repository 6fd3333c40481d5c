"""The prefix cache's names, kept once for all questions about it."""

from exporter.fold.cache.evicted import Forgotten
from exporter.fold.cache.fold import Cache
from exporter.fold.cache.whatif import WhatIf

__all__ = ["Cache", "Forgotten", "WhatIf"]
