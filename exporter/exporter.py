"""One server's exporter: give it targets, start it, render pages."""

from collections.abc import Collection, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector

from exporter.catalogue import COMPAT_SETS, DEFAULT_COMPAT
from exporter.clock import Clock
from exporter.machine import Machine
from exporter.page import Page
from exporter.readings import PageReader
from exporter.sources import InProcessSource
from exporter.target import Target
from exporter.web.negotiation import negotiate
from kvscope_events.bus import Subscription


class Exporter:
    """Renders the page of a server, at any time and from any thread.

        exporter = in_process(bus.subscribe())
        exporter.start()
        app.include_router(metrics_router(exporter))
        ...
        exporter.stop()

    Before `start` and after `stop` a page is as fresh as at any time: rendering drains the queues.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        readers: Sequence[PageReader] = (),
        machine: Machine | None = None,
        clock: Clock | None = None,
        process: bool = True,
    ) -> None:
        """readers: of the server's own pages, for what its targets do not tell.

        process: with the `process_*` families of this process, which is not the engine's own.
        """
        self._clock = clock or Clock()
        self.targets = tuple(targets)
        self.readers = tuple(readers)
        self._page = Page(self.targets, machine or Machine(), self._clock, self.readers)
        self.registry = CollectorRegistry()
        self.registry.register(self._page)
        if process:
            ProcessCollector(registry=self.registry)

    def start(self) -> None:
        """Begin to fold, on one thread for each target; may be called once."""
        for target in self.targets:
            target.start()

    def stop(self) -> None:
        """End the threads; pages can still be rendered."""
        for target in self.targets:
            target.stop()
        for reader in self.readers:
            reader.close()

    def render(self, accept: str | None = None) -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics where `accept` names it, otherwise text."""
        began_ns = self._clock.monotonic_ns()
        encode, content_type = negotiate(accept or "")
        page = encode(self.registry)
        self._page.scrape_seconds = (self._clock.monotonic_ns() - began_ns) / 1e9
        return page, content_type


def in_process(
    subscription: Subscription,
    *,
    compat: Collection[str] = DEFAULT_COMPAT,
    machine: Machine | None = None,
    clock: Clock | None = None,
) -> Exporter:
    """The exporter of an engine in this process."""
    clock = clock or Clock()
    check_compat(compat)
    target = Target(InProcessSource(subscription), compat=compat, clock=clock)
    return Exporter([target], machine=machine, clock=clock)


def check_compat(compat: Collection[str]) -> None:
    """Raises ValueError for a compatibility set that does not exist."""
    unknown = set(compat) - COMPAT_SETS
    if unknown:
        known = ", ".join(sorted(COMPAT_SETS))
        raise ValueError(f"compat {', '.join(sorted(unknown))}: expected some of {known}")
