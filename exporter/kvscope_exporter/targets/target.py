"""One watched engine: its source, its folds, the facts in its Hello, its part of a page."""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_events.pid_space import pid_space
from kvscope_exporter.answers.question import ProcessMemory, QueryContext, Question, UnknownError
from kvscope_exporter.catalogue import CATALOGUE
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.families import Families
from kvscope_exporter.collect.observation import (
    collect_census,
    collect_observer,
    collect_pipeline,
    collect_source,
)
from kvscope_exporter.collect.origins import ReportedFamilies
from kvscope_exporter.collect.parts import FRONT_END, START, Guard, Outlet, parts_of
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.recorder.recorder import Recorder
from kvscope_exporter.sources import Source, SourceStatus
from kvscope_exporter.sources.attachments import REMOTE
from kvscope_exporter.sources.listener import Listener
from kvscope_exporter.sources.pipeline import Pipeline
from kvscope_exporter.state import (
    DeviceMemory,
    EventCounts,
    Folds,
    FrontEnd,
    HelloTracker,
    Ledger,
    Requests,
)
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.engine import Engine
from kvscope_exporter.state.timeline import PERIOD_NS, Timeline, figures_of
from kvscope_exporter.targets.asking import PageQuestions, readable
from kvscope_exporter.targets.compact import Signals, signals_of
from kvscope_exporter.targets.engine_page import EnginePage, is_front_end, labels_of

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_FACTS = frozenset(row.family for row in CATALOGUE if row.events == ("Hello",))
"""Families of facts in the Hello, which do not depend on the state of the pool."""
_OF_WORKERS = frozenset(fold.name for fold in (HelloTracker, DeviceMemory, FrontEnd, EventCounts))
"""Folds for the events of a worker or a front end; the others never get one of theirs there."""
_FOLDED = frozenset(row.family for row in CATALOGUE if row.events)
"""Families that come from events."""


class Target:
    """Facts arrive late: until the engine's Hello, only the families about the stream are known."""

    def __init__(
        self,
        source: Source,
        *,
        compat: Collection[str],
        clock: Clock,
        listeners: Sequence[Listener] = (),
        recorder: Recorder | None = None,
        own_pid_space: str | None = None,
    ) -> None:
        """listeners: further consumers of its batches. own_pid_space: of the process that recorded
        what is replayed, empty if it is not known; None: this one's."""
        self.source = source
        self._clock = clock
        self._parts = parts_of(compat, source.kind)
        self._recorder = recorder
        self._stream = None if recorder is None else recorder.stream(source.kind, source.endpoint)
        self._further = (*listeners, *([] if self._stream is None else [self._stream]))
        self.folds = Folds(())
        self._signals = Signals(("", ""))
        self.timeline = Timeline()
        self.pipeline = Pipeline(
            source,
            self._listeners,
            clock,
            self._note_signals,
            (PERIOD_NS, self._note_period),
            self.timeline.forget,
        )
        self._is_replayed = own_pid_space is not None
        own = pid_space() if own_pid_space is None else own_pid_space
        self._pid_spaces = (own,) if own else ()
        self._same_labels_reported = False
        self._retired = False
        self._retired_after: int | None = None
        self._families: Families | None = None
        self._known_as: Hello | None = None
        self._tells: frozenset[str] = frozenset()
        self._shown: frozenset[str] = frozenset()
        self._sums: frozenset[str] = frozenset()

    @property
    def hello(self) -> Hello | None:
        """The engine's latest Hello; None before the first."""
        return self.folds[HelloTracker].hello

    @property
    def labels(self) -> tuple[str, str]:
        """model_name and engine; empty before the first Hello."""
        return labels_of(self.hello)

    @property
    def is_content(self) -> bool:
        """Whether its stream names cached content and knows no blocks; no family is in both
        kinds."""
        return self.source.kind == "kv_events"

    @property
    def signals(self) -> Signals | None:
        """Signals of the last moment when something was folded; returned without waiting.

        None: this is not an engine with requests and a pool of its own.
        """
        signals, hello = self._signals, self.hello
        if self.is_content or (hello is not None and hello.worker is not None):
            return None
        if not (self.source.up and self.source.state_known):
            return Signals(signals.labels)
        return signals

    @property
    def is_retired(self) -> bool:
        """Whether it ended on purpose and has not been heard since."""
        source = self.source
        if self._retired and (source.up or source.last_message_ns != self._retired_after):
            self._retired = False
        return self._retired

    def retire(self) -> bool:
        """Regard it as ended on purpose; False, without effect, while it is heard."""
        if self.source.up:
            return False
        self._retired, self._retired_after = True, self.source.last_message_ns
        return True

    def start(self) -> None:
        """Begin to read the source; may be called once."""
        self.pipeline.start()

    def end(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self.pipeline.end()

    def stop(self) -> None:
        """Fold what has arrived, and close the source; a page can still be read."""
        self.pipeline.stop()
        with self.pipeline.settled():  # a page may be reading it on another thread
            self.source.close()
        if self._recorder is not None and self._stream is not None:
            self._recorder.leave(self._stream)

    def attach(self, listener: Listener) -> None:
        """Hand a further listener all batches from now on; called within `pipeline.settled`."""
        self._further = (*self._further, listener)
        self.pipeline.add(listener)

    def detach(self, listener: Listener) -> None:
        """The opposite of `attach`; called within `pipeline.settled`."""
        self._further = tuple(other for other in self._further if other is not listener)
        self.pipeline.remove(listener)

    @property
    def further(self) -> tuple[Listener, ...]:
        """The listeners besides the folds."""
        return self._further

    def collect(
        self,
        guard: Guard,
        taken: Collection[tuple[str, str]] = (),
        outlet: Outlet = "page",
        asking: PageQuestions | None = None,
    ) -> EnginePage:
        """Every known family. The folds are held meanwhile; the text is rendered afterwards.

        taken: the labels of other engines on this page. An engine with the same labels shows only
        the families about its stream, which distinguish the two.
        """
        with self.pipeline.settled():
            source = SourceStatus.of(self.source)
            if self._stream is not None:
                now_ns = self._clock.now().monotonic_ns
                self._stream.note(source, running=self.pipeline.running, now_ns=now_ns)
            families = self._current_families()
            page = self._stream_families(families, guard, source)
            memory = self.folds[DeviceMemory]
            hello = self.hello
            is_worker = hello is not None and hello.worker is not None
            is_alike = hello is not None and not is_worker and labels_of(hello) in taken
            if is_alike and not self._same_labels_reported:
                self._report_same_labels()
            is_observed = hello is not None and self.folds[HelloTracker].stopped is None
            if hello is not None and is_observed and not is_alike:
                for part in self._parts:
                    if is_worker and part.group not in (FRONT_END, START):
                        continue
                    if outlet in part.outlets and not self.pipeline.failed(self.folds[part.fold]):
                        collect = partial(part.read, families, self.folds, hello)
                        page += self._tellable(guard.read(part.group, collect))
            answerable: dict[str, Any] = {}
            if asking is not None and hello is not None and not is_alike and not is_worker:
                asked = asking
                answerable = dict(guard.read("advice", lambda: self._read_all(asked)))
            known = is_observed and source.up and source.state_known
            return EnginePage(
                families=page,
                maker=families,
                hello=hello,
                told=ReportedFamilies(
                    self._shown & _FOLDED if is_observed else frozenset(),
                    frozenset({source.session} if source.up else ()),
                    None if hello is None else hello.server,
                ),
                is_alike=is_alike,
                memory_samples=memory.samples(),
                activation_peaks=memory.activation_peaks.copy(),
                startup_terms=memory.startup_terms if known else {},
                up=source.up,
                heard_ns=source.last_message_ns,
                began_ns=self._began_ns,
                is_observed=is_observed,
                is_here=hello is not None and self._is_here(hello),
                read=answerable,
            )

    def memory(self) -> ProcessMemory | None:
        """This process's report of its memory; None: not known now, or a front end's."""
        with self.pipeline.settled():
            hello, memory = self.hello, self.folds[DeviceMemory]
            if hello is None or not self.source.up or self.pipeline.failed(memory):
                return None
            if is_front_end(hello):
                return None
            return ProcessMemory(
                hello=hello,
                samples=memory.samples(),
                activation_peaks=memory.activation_peaks.copy(),
                startup_terms=memory.startup_terms,
                is_here=self._is_here(hello),
            )

    def answer(
        self,
        question: Question[_T],
        machine: Machine,
        processes: Sequence[ProcessMemory] = (),
    ) -> _T:
        """The question's answer from the folds, which are settled, and held while it reads them.

        Raises UnknownError, and whatever the question raises.
        """
        with self.pipeline.settled():
            self._current_families()
            read = self._read(question, machine, processes)
        return question.finish(read)

    def _read_all(self, asking: PageQuestions) -> Iterator[tuple[str, Any]]:
        for question in asking.questions if not self.is_content else ():
            with suppress(UnknownError):
                yield question.name, self._read(question, asking.machine, asking.processes)

    def _read(
        self, question: Question[Any], machine: Machine, processes: Sequence[ProcessMemory]
    ) -> Any:
        """Read the contents of an answer; the folds are held meanwhile. Raises UnknownError."""
        hello, source = self.hello, self.source
        if hello is None:
            raise UnknownError("the engine's state is not known: it is not connected, or lost")
        return question.read(
            QueryContext(
                hello=hello,
                folds=readable(question, self.folds, source, self.pipeline, self._tells),
                machine=machine,
                clock=self._clock,
                processes=processes,
                timeline=self.timeline,
                silent_since_ns=None if source.up else source.last_message_ns or 0,
            )
        )

    def _is_here(self, hello: Hello) -> bool:
        return self.source.kind == "inprocess" or hello.pid_space in self._pid_spaces

    def _report_same_labels(self) -> None:
        self._same_labels_reported = True
        logger.error(
            "%s: two engines of one server have the labels model_name=%r engine=%r: only the first "
            "is shown; give each engine a model name or a rank of its own",
            self.source.endpoint or self.source.kind,
            *self.labels,
        )

    def _stream_families(
        self, families: Families, guard: Guard, source: SourceStatus
    ) -> list[Family]:
        pipeline, folds = self.pipeline, self.folds
        hello = self.hello
        is_worker = hello is not None and hello.worker is not None
        only = _OF_WORKERS if is_worker else frozenset(fold.name for fold in folds)
        return [
            *guard.read(
                "self",
                lambda: collect_source(families, source, self._is_replayed or pipeline.running),
            ),
            *guard.read(
                "self", lambda: collect_observer(families, folds[HelloTracker], self._tells)
            ),
            *guard.read("self", lambda: collect_census(families, folds[EventCounts], self._tells)),
            *guard.read("self", lambda: collect_pipeline(families, pipeline, only)),
        ]

    def _note_signals(self) -> None:
        """Called by the thread that holds the folds."""
        hello, folds = self.hello, self.folds
        if hello is None or self.is_content or hello.worker is not None:
            return
        failed = self.pipeline.failed(folds[Requests]) or self.pipeline.failed(folds[Ledger])
        if failed or folds[HelloTracker].stopped is not None:
            self._signals = Signals(self.labels)
        else:
            self._signals = signals_of(self.labels, folds, frozenset(hello.tells))

    def _note_period(self, end_ns: int) -> None:
        """Called by the thread that holds the folds."""
        if self._has_pool:
            self.timeline.add(end_ns, figures_of(self.folds))

    @property
    def _has_engine_here(self) -> bool:
        """Whether its engine, as far as it is known, runs on this host."""
        hello = self.hello
        return hello is None or not (hello.remote or hello.local_engines == 0)

    @property
    def _has_pool(self) -> bool:
        hello = self.hello
        return hello is not None and hello.worker is None and not self.is_content

    def _listeners(self) -> tuple[Listener, ...]:
        """New folds for a new session; the former producer's state is dropped with the old ones."""
        self._began_ns = self._clock.now().monotonic_ns
        for listener in self._further:
            listener.on_gap()  # requests of the former producer will not end
        if self._stream is not None:
            self._stream.renew()
        self.folds = Folds(part.fold for part in self._parts)
        self._signals = Signals(("", ""))
        self.timeline.renew()
        engine = Engine(self._clock.monotonic_ns)
        others: list[Listener] = []
        for fold in self.folds:
            if isinstance(fold, CallFold):
                fold.join(engine)
            else:
                others.append(fold)
        return (*others, engine, *self._further)

    def _tellable(self, families: list[Family]) -> list[Family]:
        """The families that the engine can report; only sums while its present state is unknown."""
        shown = self._shown
        if not self.source.up:
            shown = self._sums
        elif not self.source.state_known:
            shown = self._sums | _FACTS & shown
        return [family for family in families if family.name in shown]

    def _current_families(self) -> Families:
        hello = self.hello
        if self._families is None or hello is not self._known_as:
            self._known_as = hello
            model_name, engine = self.labels
            self._families = Families(
                {
                    "model_name": model_name,
                    "engine": engine,
                    "source": self.source.kind if self._has_engine_here else REMOTE,
                    "endpoint": self.source.endpoint,
                    "front_end": (hello.worker or "") if hello and is_front_end(hello) else "",
                    "worker": (hello.worker or "") if hello else "",
                },
                self._clock,
            )
            self._tells = frozenset(hello.tells) if hello is not None else frozenset()
            server = hello.server if hello is not None else None
            known = [row for row in CATALOGUE if row.is_observable(self._tells, server)]
            self._shown = frozenset(row.family for row in known)
            self._sums = frozenset(row.family for row in known if row.kind != "gauge")
        return self._families
