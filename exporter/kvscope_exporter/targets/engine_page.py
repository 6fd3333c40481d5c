"""The part of a page that one engine gives, and the labels that distinguish engines."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.collect.families import Families
from kvscope_exporter.collect.origins import ReportedFamilies
from kvscope_exporter.state import TimedSample


class EnginePage(NamedTuple):
    """An engine's part of one page, all of one moment."""

    families: list[Family]
    maker: Families
    """Makes families with this engine's labels."""
    hello: Hello | None
    told: ReportedFamilies
    """Families that its events provide: no other definition may replace one."""
    is_alike: bool
    """Whether another engine on the page has the same labels: only the stream is shown."""
    memory_samples: Mapping[str | None, Sequence[TimedSample]]
    """Reports of device memory by device."""
    activation_peaks: Mapping[str, int]
    """Largest step by device."""
    startup_terms: Mapping[str, int]
    """A worker's measurements at start-up; empty while its state is not known."""
    up: bool
    heard_ns: int | None
    """Arrival of its last message; None: it has never been heard."""
    began_ns: int
    """When this exporter first heard of its present session, or began to listen."""
    is_observed: bool
    """Whether its observer works."""
    is_here: bool
    """Whether its pid names the same process for us; it does not from another container."""
    read: Mapping[str, Any]
    """Contents of the answers to the questions that were asked, by name; without those that are
    not known."""

    @property
    def labels(self) -> tuple[str, str]:
        """model_name and engine; empty until the engine has reported them."""
        return labels_of(self.hello)

    @property
    def worker(self) -> str | None:
        """Rank of a process that reports memory only, for the engine with the same labels, or name
        of a front end."""
        return None if self.hello is None else self.hello.worker

    @property
    def is_remote(self) -> bool:
        """Whether it is a worker of an engine whose scheduler is on another host."""
        return self.hello is not None and self.hello.remote

    @property
    def is_front_end(self) -> bool:
        """Whether it answers clients, and belongs to the server, not to one of its engines."""
        return self.hello is not None and is_front_end(self.hello)


def labels_of(hello: Hello | None) -> tuple[str, str]:
    """model_name and engine; empty until the engine has reported them."""
    return ("", "") if hello is None else (hello.model_name, hello.engine)


def is_elsewhere(engine: tuple[str, str], hellos: Iterable[Hello]) -> bool:
    """Whether a front end says that this engine of its server runs on another host.

    engine: model_name and engine.
    """
    model_name, number = engine
    for hello in hellos:
        if hello.local_engines is None or hello.model_name != model_name:
            continue
        if number.isdecimal() and hello.engine.isdecimal():
            first = int(hello.engine)
            return not first <= int(number) < first + hello.local_engines
    return False


def is_front_end(hello: Hello) -> bool:
    """Whether the process answers clients."""
    return hello.worker is not None and "AnswerSent" in hello.tells
