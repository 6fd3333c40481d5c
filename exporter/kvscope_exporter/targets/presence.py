"""The state of a watched server, derived from its engines and its own page.

A server that is configured or was heard has exactly one state until it is retired.
"""

from collections.abc import Callable, Sequence

from kvscope_exporter.catalogue.server import ServerState
from kvscope_exporter.scrape import PageReader
from kvscope_exporter.targets.engine_page import is_front_end
from kvscope_exporter.targets.target import Target


class Presence:
    """The state of one server; computed on each request, by any thread."""

    def __init__(
        self,
        targets: Callable[[], Sequence[Target]],
        readers: Sequence[PageReader],
        is_configured: Callable[[], bool],
        silent: Callable[[], Sequence[str]],
    ) -> None:
        """is_configured: whether there is a server to watch, even if it has not been heard; silent:
        endpoints where nothing was ever heard."""
        self._targets = targets
        self._readers = readers
        self._is_configured = is_configured
        self._silent = silent
        self._was_heard = False
        self._retired = False

    @property
    def state(self) -> ServerState | None:
        """None: no server is watched, or it was retired and has not been heard since."""
        if not self._is_configured():
            return None
        targets = [target for target in self._targets() if not target.is_retired]
        readers = [reader for reader in self._readers if not reader.is_retired]
        is_heard = any(target.source.up for target in targets)
        self._was_heard = (
            self._was_heard
            or is_heard
            or any(
                [
                    *(target.source.last_message_ns is not None for target in targets),
                    *(reader.last_success_ns is not None for reader in readers),
                ]
            )
        )
        if not is_heard and not any(reader.answers for reader in readers):
            if self._retired:
                return None
            return "gone" if self._was_heard else "expected"
        self._retired = False
        return "ready" if _is_ready(targets, readers) else "loading"

    def unheard(self, state: ServerState | None) -> Sequence[str]:
        """Endpoints where nothing was ever heard of a server that takes requests: its observer was
        not loaded, or its sockets are elsewhere or cannot be read."""
        return self._silent() if state == "ready" else ()

    def retire(self) -> tuple[list[str], ServerState | None]:
        """Regard whatever is silent now as ended on purpose, until it is heard again.

        Returns the endpoints concerned, and the resulting state. Blocks while pages are read.
        """
        silent: list[Target | PageReader] = [t for t in self._targets() if not t.is_retired]
        silent += [reader for reader in self._readers if not reader.is_retired]
        retired = [_endpoint(each) for each in silent if each.retire()]
        self._retired = True
        self._was_heard = False
        return retired, self.state


def _endpoint(watched: Target | PageReader) -> str:
    return watched.endpoint if isinstance(watched, PageReader) else watched.source.endpoint


def _is_ready(targets: Sequence[Target], readers: Sequence[PageReader]) -> bool:
    """Whether every engine takes requests, and the server's own page answers.

    KV event streams say nothing about readiness: the page does, or without one the connection.
    """
    watched = [target for target in targets if not target.is_content]
    if watched:
        return _all_engines_ready(watched) and all(reader.answers for reader in readers)
    if readers:
        return all(reader.is_up for reader in readers)
    return all(target.source.up for target in targets)


def _all_engines_ready(targets: Sequence[Target]) -> bool:
    """Whether all engines are ready: not one that is silent.

    Where only workers speak of an engine, they must say that it takes requests: it may have a
    scheduler that cannot be observed, or one on another host. A front end says so for a host
    without engines.
    """
    schedulers: dict[tuple[str, str], bool] = {}
    workers: dict[tuple[str, str], bool] = {}
    for target in targets:
        hello, is_up, labels = target.hello, target.source.up, target.labels
        if hello is None:
            return False
        if hello.worker is None:
            schedulers[labels] = schedulers.get(labels, False) or (is_up and hello.ready)
        elif is_up:
            says_so = hello.ready and (not is_front_end(hello) or hello.local_engines == 0)
            workers[labels] = workers.get(labels, True) and says_so
    ready = workers | schedulers
    return bool(ready) and all(ready.values())
