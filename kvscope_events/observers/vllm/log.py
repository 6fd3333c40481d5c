"""One line at a time for the operator of the server, through vLLM's own log where there is one."""

import logging
import sys

_logger = logging.getLogger("vllm.kvscope")  # vLLM gives handlers to its own loggers alone


def say(text: str) -> None:
    """Tell something that is as it should be."""
    _write(logging.INFO, text)


def warn(text: str) -> None:
    """Tell something that the operator may want to change."""
    _write(logging.WARNING, text)


def _write(level: int, text: str) -> None:
    if _logger.hasHandlers():
        _logger.log(level, "kvscope: %s", text)
    else:
        print(f"kvscope: {text}", file=sys.stderr, flush=True)
