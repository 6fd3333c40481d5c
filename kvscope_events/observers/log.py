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
    _log(logging.INFO, text, _logger.hasHandlers())


def warn(text: str) -> None:
    """Log something that the operator may want to change."""
    _log(logging.WARNING, text, _logger.hasHandlers() and _logger.isEnabledFor(logging.WARNING))


def _log(level: int, text: str, has_log: bool) -> None:
    """Never raises: the server's own handlers may, and it calls us where it expects no error."""
    try:
        if has_log:
            _logger.log(level, "kvscope: %s", text)
            return
    except Exception as error:
        text = f"{text} (its log: {type(error).__name__})"
    _print(text)


def _print(text: str) -> None:
    try:
        print(f"kvscope: {text}", file=sys.stderr, flush=True)
    except Exception:  # stderr is gone, or the server's own: it must not notice
        return
