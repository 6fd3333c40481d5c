"""Silence of the parts of a serving engine: the sign of one that hangs or has died.

Only of engines that took requests: for a server that loads, has been restarted or has ended as a
whole, its state says so.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import Metric as Family

from kvscope_exporter.catalogue.observation import EnginePart
from kvscope_exporter.catalogue.server import ServerState
from kvscope_exporter.targets.engine_page import EnginePage

_NAME = "kvscope_engine_silence_seconds"


def collect_silence(
    processes: Sequence[EnginePage],
    state: ServerState | None,
    *,
    page_answers: bool,
    now_ns: int,
) -> Iterator[Family]:
    """processes: of the server, without streams of content. page_answers: whether its own page
    does: then it has not been restarted."""
    if state == "gone":
        return
    engines: dict[tuple[str, str], list[EnginePage]] = {}
    for shown in processes:
        if shown.hello is not None and not shown.is_alike:
            engines.setdefault(shown.labels, []).append(shown)
    for of_engine in engines.values():
        if not _serves(of_engine):
            continue
        ages: dict[tuple[str, ...], float] = {}
        for shown in of_engine:
            if shown.heard_ns is None or not shown.is_observed:
                continue
            if page_answers or not _is_before_a_start(shown, processes):
                part = (_part(shown),)
                ages[part] = max(ages.get(part, 0.0), (now_ns - shown.heard_ns) / 1e9)
        if ages:
            yield of_engine[0].maker.table(_NAME, ages)


def _part(shown: EnginePage) -> EnginePart:
    if shown.is_front_end:
        return "front_end"
    return "scheduler" if shown.worker is None else "worker"


def _serves(processes: Iterable[EnginePage]) -> bool:
    """Whether it took requests when it was last heard: its scheduler knows, or without one each
    worker."""
    told = [shown for shown in processes if not shown.is_front_end]
    schedulers = [shown for shown in told if shown.worker is None]
    hellos = [shown.hello for shown in schedulers or told]
    return bool(hellos) and all(hello is not None and hello.ready for hello in hellos)


def _is_before_a_start(silent: EnginePage, processes: Iterable[EnginePage]) -> bool:
    """Whether another process of the server has begun since it was last heard."""
    heard_ns = silent.heard_ns or 0
    return any(
        other is not silent and other.up and other.began_ns > heard_ns for other in processes
    )
