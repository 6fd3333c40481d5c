"""The prefix cache's names, kept once for all questions about it."""

from kvscope_exporter.state.cache.evicted import Forgotten
from kvscope_exporter.state.cache.fold import Cache
from kvscope_exporter.state.cache.whatif import WhatIf

__all__ = ["Cache", "Forgotten", "WhatIf"]
