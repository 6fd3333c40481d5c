"""One line at a time for the operator of the server, through its own log if there is one."""

import logging
import sys

_logger = logging.getLogger("vllm.kvscope")  # vLLM gives handlers to its own loggers alone


def speak_as(logger: str) -> None:
    """Use this logger in this process, which belongs to one server."""
    global _logger
    _logger = logging.getLogger(logger)


def say(text: str) -> None:
    """Log something expected."""
    if _logger.hasHandlers():
        _logger.info("kvscope: %s", text)
    else:
        _print(text)


def warn(text: str) -> None:
    """Log something that the operator may want to change."""
    if _logger.hasHandlers() and _logger.isEnabledFor(logging.WARNING):
        _logger.warning("kvscope: %s", text)
    else:
        _print(text)


def _print(text: str) -> None:
    try:
        print(f"kvscope: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError):  # stderr is gone: the server must not notice
        return
