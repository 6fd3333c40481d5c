"""One server's page: its engines, its GPUs, and the exporter; every family once, in the order of
the catalogue.

A part that raises is left out and counted; the rest of the page is complete.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from kvscope_exporter import build_version
from kvscope_exporter.catalogue import CATALOGUE
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.device_memory import collect_ledger_of_devices, collect_torch
from kvscope_exporter.collect.engine_memory import EngineMemory
from kvscope_exporter.collect.families import Families
from kvscope_exporter.collect.gpu import collect_gpus, collect_nvml
from kvscope_exporter.collect.observation import (
    RecorderHealth,
    collect_build,
    collect_recording,
    collect_server,
    collect_unheard,
)
from kvscope_exporter.collect.origins import ReportedFamilies
from kvscope_exporter.collect.parts import Guard, Outlet, ScrapeLimiter
from kvscope_exporter.collect.readings import Readings
from kvscope_exporter.machine.gpu import DeviceSample
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.recorder.recorder import Recorder
from kvscope_exporter.targets.advised import AdviceCollector
from kvscope_exporter.targets.engine_page import EnginePage, is_elsewhere
from kvscope_exporter.targets.engine_processes import collect_processes
from kvscope_exporter.targets.presence import Presence
from kvscope_exporter.targets.silence import collect_silence
from kvscope_exporter.targets.target import Target

_OF_TIERS = "kvscope_kv_tier_"
_PLACES = {row.family: place for place, row in enumerate(CATALOGUE)}


def _place(family: Family) -> int:
    return _PLACES[family.name]


def _further(known: Family, family: Family) -> list[Sample]:
    """The samples of a part of a family; a tier that an observer and a stream of names both report
    is shown once."""
    if not family.name.startswith(_OF_TIERS):
        return list(family.samples)
    have = [sample.labels for sample in known.samples]
    return [sample for sample in family.samples if sample.labels not in have]


def _takes_requests(target: Target) -> bool:
    hello = target.hello
    return hello is not None and hello.worker is None and hello.ready and target.source.up


class Page:
    """A collector for a prometheus_client registry."""

    def __init__(
        self,
        targets: Callable[[], Sequence[Target]],
        machine: Machine,
        clock: Clock,
        readings: Readings,
        presence: Presence,
        *,
        beside_engine: bool = False,
    ) -> None:
        """targets: returns the present ones; they may come and go.

        beside_engine: rendering a page lets the steps of this process through.
        """
        self._targets = targets
        self._readings = readings
        self._presence = presence
        self.machine = machine
        self._clock = clock
        self._advised = AdviceCollector(clock)
        self._turns = ScrapeLimiter(beside_engine=beside_engine)
        self._guard = Guard(self._turns)
        self._families = Families({}, clock)
        self._build = build_version()
        self.recorder: Recorder | None = None
        """Notes what a page reads, for a replay; None: nothing is recorded."""
        self.recording: Callable[[], RecorderHealth | None] = lambda: None
        """State of the recorder; None: nothing is recorded."""
        self.scrape_seconds: float | None = None
        """Duration of the last scrape, set by the caller that times it."""

    def collect(self, outlet: Outlet = "page") -> Iterator[Family]:
        """Each engine's folds are held only while its own part is read."""
        self._turns.begin()
        page: dict[str, Family] = {}
        for family in self._all(outlet):
            known = page.setdefault(family.name, family)
            if known is not family:
                known.samples += _further(known, family)
        for family in sorted(page.values(), key=_place):
            self._turns.offer()
            yield family

    def _all(self, outlet: Outlet) -> Iterator[Family]:
        now_ns = self._clock.now().monotonic_ns
        seen: dict[bool, set[tuple[str, str]]] = {False: set(), True: set()}
        told: dict[tuple[str, str], ReportedFamilies] = {}
        engines: list[EnginePage] = []
        asked: list[tuple[Target, EnginePage]] = []
        targets, readings = self._targets(), self._readings
        is_ready = any(_takes_requests(target) for target in targets)
        pages = self._guard.read("page", lambda: readings.read(is_ready=is_ready))
        advised, machine = self._advised, self.machine
        asking = next(
            iter(self._guard.read("advice", lambda: [advised.asking(targets, machine)])), None
        )
        for target in targets:
            taken = seen[target.is_content]  # a stream of names may accompany one of blocks
            shown = target.collect(self._guard, taken, outlet, asking)
            if shown.hello is not None and shown.worker is None:
                taken.add(shown.labels)
                if not shown.is_alike:
                    told[shown.labels] = told.get(shown.labels, ReportedFamilies()) | shown.told
                    if not target.is_content:
                        asked.append((target, shown))
            engines.append(shown)
        for origins in self._guard.read("page", lambda: [readings.decide(pages, told)]):
            if self.recorder is not None:
                self.recorder.note_readings(pages, origins.not_of_events, origins.not_of_page)
        for shown in engines:
            yield from readings.beside(shown.labels, shown.families)
        front_ends = [one.hello for one in engines if one.hello is not None and one.is_front_end]
        elsewhere = partial(is_elsewhere, hellos=front_ends)
        yield from self._guard.read("page", lambda: readings.collect(pages, told, elsewhere))
        state = self._presence.state  # by the pages that were just read
        unheard = self._presence.unheard(state)
        yield from self._guard.read("server", lambda: collect_server(self._families, state))
        yield from self._guard.read("server", lambda: collect_unheard(unheard, self._clock))
        health = self.recording()
        yield from self._guard.read("server", lambda: collect_recording(self._families, health))
        yield from collect_processes(engines, self._guard, self.machine, now_ns)
        processes = [
            one for target, one in zip(targets, engines, strict=True) if not target.is_content
        ]
        answers = any(page.reading.answers for page in pages)
        yield from self._guard.read(
            "self",
            lambda: collect_silence(processes, state, page_answers=answers, now_ns=now_ns),
        )
        is_new = asking is not None
        yield from self._guard.read("advice", lambda: advised.collect(asked, is_new=is_new))
        if self.recorder is not None:
            self.recorder.note_server(state, unheard, advised=is_new)
        yield from self._devices(engines, now_ns)
        yield from self._own()

    def _devices(self, shown: Sequence[EnginePage], now_ns: int) -> Iterator[Family]:
        engines = EngineMemory(
            [engine.memory_samples for engine in shown],
            [engine.activation_peaks for engine in shown],
        )
        devices: tuple[DeviceSample, ...] = ()
        guard, families, machine = self._guard, self._families, self.machine
        gpu = machine.gpu
        if gpu is not None:
            reading = gpu.read()
            yield from guard.read("gpu", lambda: collect_nvml(families, reading))
            sample = reading.sample
            if sample is not None:
                devices = sample.devices
                if machine.only_reported:
                    devices = tuple(d for d in devices if d.identity.uuid in engines.devices)
                yield from guard.read("gpu", lambda: collect_gpus(families, sample, devices))
                pids = {engine.hello.pid for engine in shown if engine.hello is not None}
                yield from guard.read(
                    "device_memory",
                    lambda: collect_ledger_of_devices(families, devices, engines, pids, now_ns),
                )
        yield from guard.read(
            "device_memory", lambda: collect_torch(families, engines, devices, now_ns)
        )

    def _own(self) -> Iterator[Family]:
        families = self._families
        if self.scrape_seconds is not None:
            yield families.single("kvscope_scrape_duration_seconds", self.scrape_seconds)
        yield from self._guard.read("self", lambda: collect_build(families, self._build))
        yield families.single("kvscope_collect_errors_total", self._guard.errors.total())
