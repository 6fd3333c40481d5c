"""SIGHUP reloads the configuration, on a thread of its own; without a file, see `signals`."""

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvscope.serving.signal_thread import SignalThread

logger = logging.getLogger("kvscope")


@contextmanager
def hangups(wanted: bool) -> Iterator[SignalThread | None]:
    """Inside the block SIGHUP is held, if wanted, even before there is anything to reload."""
    hangup = SignalThread(signal.SIGHUP, "kvscope-reload") if wanted else None
    try:
        yield hangup
    finally:
        if hangup is not None:
            hangup.release()


@contextmanager
def reloading(hangup: SignalThread | None, reload: Callable[[], None]) -> Iterator[None]:
    """Inside the block `reload` is called for every SIGHUP; several at once count as one."""

    def run() -> None:
        try:
            reload()
        except Exception:
            logger.exception("the configuration could not be reloaded: a bug")

    if hangup is None:
        yield
        return
    hangup.start(run)
    try:
        yield
    finally:
        hangup.stop()
