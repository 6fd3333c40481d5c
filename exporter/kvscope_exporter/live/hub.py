"""All engines of a process that can be looked at, and what is known of each without looking."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import msgspec

from kvscope_exporter.live.broadcast import Broadcast
from kvscope_exporter.live.state import kind_of
from kvscope_exporter.live.view import UnknownHereError
from kvscope_exporter.targets.target import Target

MAX_VIEWERS = 64
"""Streams of one process."""
_NAMES_ONLY = (
    "this stream names the content of the cache and numbers no blocks: the map has a square for "
    "each name, and no free blocks; neither sequences nor steps are known"
)
_NAMES = "this engine numbers no pages: the map has a square for each page that has a name"
_COUNTED = (
    "this engine counts its pages and gives them neither numbers nor names: no map can be drawn. "
    "With KVSCOPE_OBSERVER_NAMES=on in its environment pages have names: docs/attach/sglang.md"
)
_NO_EVENTS = (
    "only the server's own metrics page is read: it has totals, and neither blocks nor sequences. "
    "With events the map can be drawn: docs/attach/sidecar.md"
)
_NOTHING_YET = "nothing has been heard of it yet"


class Watchable(Protocol):
    """A server whose engines can be looked at."""

    def present(self) -> AbstractContextManager[Sequence[Target]]:
        """The present targets, which are not replaced inside the block."""
        ...


class EngineDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One engine."""

    key: str
    """For `?engine=`."""
    model_name: str
    engine: str
    server: str
    map: str
    """See `Pool.map`."""
    note: str
    """Limits of the map, with the reason; empty: a map of all blocks."""


class Engines(msgspec.Struct, frozen=True, kw_only=True):
    """One server."""

    engines: list[EngineDocument]
    note: str
    """The reason for having no engines; empty: it has some."""


class TooManyError(Exception):
    """There are too many viewers."""


class Hub:
    """For any thread."""

    def __init__(self, find: Callable[[str], Watchable]) -> None:
        """find: the server of a name, empty for the only one. Raises UnknownHereError."""
        self._find = find
        self._broadcasts: dict[tuple[str, str], Broadcast] = {}
        self._lock = threading.Lock()

    def engines(self, server: str) -> Engines:
        """Raises UnknownHereError."""
        with self._find(server).present() as targets:
            for target in targets:
                target.pipeline.drain()  # its Hello may just have come
            engines = [_described(target) for target in _shown(targets)]
        note = "" if engines else (_NOTHING_YET if targets else _NO_EVENTS)
        return Engines(engines=engines, note=note)

    def broadcast(self, server: str, engine: str) -> Broadcast:
        """engine: its key, or empty for the only one. Raises UnknownHereError."""
        key = engine or self._only(server)
        with self._find(server).present() as targets:
            among(targets, key)
        with self._lock:
            found = self._broadcasts.get((server, key))
            if found is None:
                for place in [at for at, each in self._broadcasts.items() if not each.following]:
                    if not self._broadcasts[place].num_viewers:
                        del self._broadcasts[place]
                found = Broadcast(lambda: self._held(server, key))
                self._broadcasts[server, key] = found
            return found

    def check_room(self) -> None:
        """Raises TooManyError."""
        with self._lock:
            viewers = sum(each.num_viewers for each in self._broadcasts.values())
        if viewers >= MAX_VIEWERS:
            raise TooManyError(f"{viewers} pages look at this process already")

    def _only(self, server: str) -> str:
        engines = self.engines(server)
        if not engines.engines:
            raise UnknownHereError(engines.note)
        return engines.engines[0].key

    @contextmanager
    def _held(self, server: str, key: str) -> Iterator[Target]:
        with self._find(server).present() as targets:
            yield among(targets, key)


def _shown(targets: Sequence[Target]) -> list[Target]:
    """Engines that can be looked at; not the stream of names of one that is observed too."""
    engines = sorted((t for t in targets if _is_engine(t)), key=lambda target: target.is_content)
    by_key: dict[str, Target] = {}
    for target in engines:
        by_key.setdefault(_key_of(target), target)
    return list(by_key.values())


def among(targets: Sequence[Target], key: str) -> Target:
    """The engine of this key. Raises UnknownHereError."""
    shown = {_key_of(target): target for target in _shown(targets)}
    if key not in shown:
        known = ", ".join(shown) or "none"
        raise UnknownHereError(f"no engine {key[:200]!r} here now; known: {known}")
    return shown[key]


def _key_of(target: Target) -> str:
    model_name, engine = target.labels
    return f"{model_name}/{engine}"


def _is_engine(target: Target) -> bool:
    hello = target.hello
    return hello is not None and hello.worker is None


def _described(target: Target) -> EngineDocument:
    hello = target.hello
    assert hello is not None
    with target.pipeline.settled():
        kind = kind_of(target)
    notes = {
        "counted": _COUNTED,
        "unknown": "its state is unknown until its next snapshot",
        "names": _NAMES_ONLY if target.is_content else _NAMES,
    }
    return EngineDocument(
        key=_key_of(target),
        model_name=hello.model_name,
        engine=hello.engine,
        server=hello.server,
        map=kind,
        note=notes.get(kind, ""),
    )
