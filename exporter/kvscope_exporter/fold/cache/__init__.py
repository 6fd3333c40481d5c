"""The prefix cache's names, kept once for all questions about it."""

from kvscope_exporter.fold.cache.evicted import Forgotten
from kvscope_exporter.fold.cache.fold import Cache
from kvscope_exporter.fold.cache.whatif import WhatIf

__all__ = ["Cache", "Forgotten", "WhatIf"]
