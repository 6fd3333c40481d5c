"""One server's exporter: give it targets, start it, render pages."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from kvscope_events.bus import Subscription
from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.answers.question import Question
from kvscope_exporter.catalogue import COMPAT_SETS, DEFAULT_COMPAT
from kvscope_exporter.catalogue.metric import Detail
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.detail import lean
from kvscope_exporter.collect.observation import RecorderHealth
from kvscope_exporter.collect.readings import Readings
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.recorder.flight import Flight
from kvscope_exporter.recorder.recorder import Recorder
from kvscope_exporter.scrape import PageReader
from kvscope_exporter.sources.listener import Listener
from kvscope_exporter.sources.pipeline import InProcessSource
from kvscope_exporter.targets.compact import compact_page
from kvscope_exporter.targets.exposition import negotiate
from kvscope_exporter.targets.page import Page
from kvscope_exporter.targets.presence import Presence
from kvscope_exporter.targets.reply import Reply, ask
from kvscope_exporter.targets.target import Target
from kvscope_exporter.targets.troubles import Troubles

_PAGE_ALONE = "its own metrics do not answer this; `kvscope doctor --target` says how to observe it"


class Watcher(ABC):
    """Adds targets to an exporter and removes them, from a thread of its own."""

    def __init__(self, name: str) -> None:
        """name: the thread's."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _run(self) -> None:
        """Watch until `_stopping` is set."""

    @property
    def silent(self) -> str | None:
        """The endpoint that it watches, if nothing was ever heard there; None: something was, or
        it has not looked."""
        return None

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin; called once."""
        self._thread.start()

    def end(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._stopping.set()

    def stop(self, seconds: float | None = None) -> None:
        """End the thread, or leave it to itself after this time; the exporter stops the targets."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(seconds)


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
        beside_engine: bool = False,
        recorder: Recorder | None = None,
        presence: Presence | None = None,
        readings: Readings | None = None,
        recording: Callable[[], RecorderHealth | None] | None = None,
    ) -> None:
        """readers: of the server's own pages, for what its targets do not report.

        process: include the `process_*` families of this process. beside_engine: the engine's steps
        run in this process, and rendering a page lets them through. recorder: of this server.
        presence, readings, recording: of a replayed server; None: they follow from targets, readers
        and recorder.
        """
        self._clock = clock or Clock()
        self._targets = tuple(targets)
        self._watchers: tuple[Watcher, ...] = ()
        self._lock = threading.Lock()
        self._running = False
        self.readers = tuple(readers)
        self.presence = presence or Presence(
            lambda: self._targets,
            self.readers,
            lambda: bool(self._targets or self._watchers or self.readers),
            lambda: [one.silent for one in self._watchers if one.silent is not None],
        )
        self._page = Page(
            lambda: self._present,
            Machine(),
            self._clock,
            readings or Readings(self.readers, self._clock),
            self.presence,
            beside_engine=beside_engine,
        )
        self.detail: Detail = "full"
        """Detail of a page for which the request names none, and of what is sent by OTLP."""
        self.registry = CollectorRegistry()
        self.registry.register(self._page)
        self.recorder = self._page.recorder = recorder
        if recording is not None:
            self._page.recording = recording
        elif recorder is not None:
            self._page.recording = lambda: recorder.health
        self._flight: Flight | None = None
        self._further: tuple[Collector, ...] = ()
        if process:
            ProcessCollector(registry=self.registry)
        self.show(machine or Machine())

    @property
    def targets(self) -> tuple[Target, ...]:
        """The present targets, in the order in which they were added."""
        return self._targets

    @property
    def _present(self) -> list[Target]:
        return [target for target in self._targets if not target.is_retired]

    @contextmanager
    def present(self) -> Iterator[Sequence[Target]]:
        """Its targets for a live view; one that is removed meanwhile can still be read."""
        yield self._present

    def recorded_by(self, flight: Flight) -> None:
        """Have this server's recorder written until `stop`."""
        if self.recorder is not None:
            self._flight = flight
            troubles = Troubles(lambda: self._present, self.presence, self._clock)
            flight.watch(self.recorder, self.render, troubles)

    def show(self, machine: Machine, further: Collection[Collector] = ()) -> None:
        """Read this machine and these collectors from now on, instead of the previous ones."""
        self._page.machine = machine if self.recorder is None else self.recorder.machine(machine)
        if tuple(further) == self._further:  # a page being rendered has them
            return
        for collector in self._further:
            self.registry.unregister(collector)
        self._further = tuple(further)
        for collector in self._further:
            self.registry.register(collector)

    def start(self) -> None:
        """Begin to fold, on one thread for each target; may be called once."""
        with self._lock:
            self._running = True
            for target in self._targets:
                target.start()
            for watcher in self._watchers:
                watcher.start()

    def end(self) -> None:
        """Ask all threads to end, without waiting for them."""
        for watcher in self._watchers:
            watcher.end()
        for target in self._targets:
            target.end()

    def stop(self) -> None:
        """End the threads; pages can still be rendered."""
        for watcher in self._watchers:  # first: they add and remove targets
            watcher.stop()
        with self._lock:
            self._running = False
            self.end()  # all at once, since each takes a moment
            for target in self._targets:
                target.stop()
        for reader in self.readers:
            reader.close()
        if self._flight is not None and self.recorder is not None:
            self._flight.forget(self.recorder)

    @property
    def watching(self) -> bool:
        """Whether all watchers, which add and remove targets, are running."""
        return all(watcher.running for watcher in self._watchers)

    def attach(self, watcher: Watcher) -> None:
        """Run a watcher from `start` to `stop`; called before `start`."""
        self._watchers = (*self._watchers, watcher)

    def add(self, target: Target) -> None:
        """Show another target from the next page on; it is started if the others are."""
        with self._lock:
            self._targets = (*self._targets, target)
            if self._running:
                target.start()

    def show_targets(self, targets: Sequence[Target]) -> None:
        """Show these from the next page on; the caller starts and stops them."""
        self._targets = tuple(targets)

    def remove(self, target: Target) -> None:
        """Stop a target, and forget everything it reported."""
        with self._lock:
            self._targets = tuple(other for other in self._targets if other is not target)
        target.stop()

    def answer(self, question: Question[Any]) -> Reply:
        """The answers of all engines of this server; for any thread."""
        reply = ask(question, self._present, self._page.machine)
        return reply if reply.engines else msgspec.structs.replace(reply, unknown=self._unknown())

    def _unknown(self) -> str | None:
        """The reason why no engine is known, if there is one: at each place that is watched."""
        found = []
        for reader in self.readers:
            if not reader.is_retired:
                problem = _PAGE_ALONE if reader.read().is_up else reader.problem
                found.append(f"{reader.endpoint}: {problem}")
        silent = [one.silent for one in self._watchers if one.silent is not None]
        silent += [t.source.endpoint for t in self._present if t.source.last_message_ns is None]
        found += [f"{endpoint}: nothing has come from there yet" for endpoint in silent if endpoint]
        return "; ".join(found) or None

    def compact(self) -> bytes:
        """The page for a gateway, from stored figures; for an event loop."""
        signals = (target.signals for target in self._present)
        return compact_page(engine for engine in signals if engine is not None)

    def server_kinds(self) -> dict[tuple[str, str], ServerKind]:
        """Kinds of the engines that have reported theirs, by model_name and engine."""
        hellos = [target.hello for target in self._targets]
        return {(h.model_name, h.engine): h.server for h in hellos if h is not None}

    def collect_for_otlp(self) -> Iterator[Family]:
        """All families except those under other servers' names; for any thread."""
        families = self._families_for_otlp()
        return lean(families) if self.detail == "lean" else families

    def _families_for_otlp(self) -> Iterator[Family]:
        with self._page_moment():
            yield from self._page.collect("otlp")
        for collector in self._further:
            yield from collector.collect()

    def render(self, accept: str | None = None, detail: Detail | None = None) -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics if `accept` names it, otherwise text.

        detail: None: that of this exporter.
        """
        began_ns = self._clock.monotonic_ns()
        encode, content_type = negotiate(accept or "")
        with self._page_moment():
            families = self.registry.collect()
            page = encode(lean(families) if (detail or self.detail) == "lean" else families)
        self._page.scrape_seconds = (self._clock.monotonic_ns() - began_ns) / 1e9
        return page, content_type

    @contextmanager
    def _page_moment(self) -> Iterator[None]:
        """The moment of a page, which is recorded."""
        with self._clock.held() as moment:
            if self.recorder is None:
                yield
            else:
                with self.recorder.page(moment):
                    yield


def in_process(
    subscription: Subscription,
    *,
    compat: Collection[str] = DEFAULT_COMPAT,
    machine: Machine | None = None,
    clock: Clock | None = None,
    listeners: Sequence[Listener] = (),
    recorder: Recorder | None = None,
) -> Exporter:
    """The exporter of an engine in this process. listeners: further consumers of its batches."""
    clock = clock or Clock()
    check_compat(compat)
    source = InProcessSource(subscription)
    target = Target(source, compat=compat, clock=clock, listeners=listeners, recorder=recorder)
    return Exporter([target], machine=machine, clock=clock, beside_engine=True, recorder=recorder)


def check_compat(compat: Collection[str]) -> None:
    """Raises ValueError for a compatibility set that does not exist."""
    unknown = set(compat) - COMPAT_SETS
    if unknown:
        known = ", ".join(sorted(COMPAT_SETS))
        raise ValueError(f"compat {', '.join(sorted(unknown))}: expected some of {known}")
