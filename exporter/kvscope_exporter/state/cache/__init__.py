"""The prefix cache's names, kept once for all questions about it."""

from kvscope_exporter.state.cache.evicted import ForgottenNames
from kvscope_exporter.state.cache.fold import Cache
from kvscope_exporter.state.cache.whatif import WhatIf

__all__ = ["Cache", "ForgottenNames", "WhatIf"]
