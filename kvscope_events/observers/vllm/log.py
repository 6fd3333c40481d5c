"""Lines of the observers in vLLM's own log; on standard error where vLLM configures no logging."""

import logging
import sys

_logger = logging.getLogger("vllm.kvscope")
"""Below vLLM's own logger, so that it inherits handler, level and format."""


def say(level: int, text: str) -> None:
    """One line that begins with `kvscope:`."""
    if _logger.hasHandlers():
        _logger.log(level, "kvscope: %s", text)
    elif level >= logging.INFO:
        print(f"kvscope: {text}", file=sys.stderr, flush=True)
