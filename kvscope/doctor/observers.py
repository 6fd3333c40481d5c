"""Observers and engines that publish on this machine: answering sockets in the run directory."""

import glob
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kvscope_events.events import Hello
from kvscope_events.observers.endpoints import SERVERS, directory
from kvscope_events.wire.endpoint import EndpointError
from kvscope_events.wire.run_directory import run_directory
from kvscope_events.wire.subscriber import WireSubscriber

MAX_SOCKETS = 64
ANSWER_SECONDS = 2.0
"""An observer sends its Hello to every new subscriber; a heartbeat comes every second."""
_POLL_SECONDS = 0.02


class Observer(NamedTuple):
    endpoint: str
    hello: Hello


def observers(
    folders: Callable[[], list[str]] | None = None, seconds: float = ANSWER_SECONDS
) -> Iterator[Observer]:
    """Those that send Hello in time; sockets that are unreadable or do not answer are left out."""
    asked: list[WireSubscriber] = []
    try:
        for path in _sockets(_folders() if folders is None else folders()):
            try:
                asked.append(WireSubscriber(f"ipc://{path}"))
            except EndpointError:
                continue  # another user's, or writable by others: not for us
        end = time.monotonic() + seconds
        waiting = list(asked)
        while waiting and time.monotonic() < end:
            for subscriber in list(waiting):
                hello = _hello(subscriber)
                if hello is not None:
                    waiting.remove(subscriber)
                    yield Observer(subscriber.endpoint, hello)
            time.sleep(_POLL_SECONDS)
    finally:
        for subscriber in asked:
            subscriber.close()


def _folders() -> list[str]:
    base = glob.escape(run_directory())
    runs = glob.glob(f"{base}/run-*/sockets")
    return list(dict.fromkeys([run_directory(), *map(directory, SERVERS), *sorted(runs)]))


def _sockets(folders: list[str]) -> list[str]:
    found = [path for f in folders for path in sorted(glob.glob(f"{glob.escape(f)}/*.sock"))]
    return [path for path in found if os.access(path, os.R_OK | os.W_OK)][:MAX_SOCKETS]


def _hello(subscriber: WireSubscriber) -> Hello | None:
    taken = subscriber.take()
    while taken is not None:
        for event in taken.batch.events:
            if isinstance(event, Hello):
                return event
        taken = subscriber.take()
    return None
