"""A recording against itself and against other options: the self-check, then each setting."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

from kvscope.twin.clients import Clients, link_followers
from kvscope.twin.replay import Row
from kvscope.twin.settings import Changes, Setting, check, parsed, recorded_options
from kvscope.twin.step_time import StepTime, fitted
from kvscope.twin.traffic import Traffic, traffic_of
from kvscope.whatif.findings import WhatIfError

LATENCIES = ("ttft_p50", "ttft_p95", "itl_p50", "itl_p95")
FIGURES = (*LATENCIES, "tokens_per_second", "preemptions", "hit_ratio")
SHIFTS = (-1.0, 0.5, 1.0)
"""Seconds by which each draw takes the noise of the recorded steps from another moment: with its
own the self-check would find no error."""
_LEAST_ALIKE = 0.8
"""Share of steps; below it, what was recorded is not what this scheduler does."""
_GOOD_FIT = 0.8
_MANY = 0.01
_LEAST_STEPS = 50
_LEAST_COUNT = 5
"""Preemptions by which two runs of the same options differ."""


class Range(NamedTuple):
    """A figure over all draws, and over what the recording cannot tell apart."""

    low: float
    middle: float
    high: float


Figures = dict[str, Range | None]
"""By name, as in `FIGURES`; None: not known, or refused."""


class Scheduler(Protocol):
    """A scheduler that serves the recorded calls: `ask` takes what `replay.answer` needs."""

    name: str
    version: str
    options: Collection[str]
    """Those that it has."""

    def ask(self, **question: Any) -> Any:
        """Raises WhatIfError."""
        ...


@dataclass
class Outcome:
    """The prediction for one setting."""

    setting: Setting
    figures: Figures
    within_error: set[str] = field(default_factory=set)
    """Figures that differ from those as it was by no more than the twin is wrong about these."""
    notes: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Comparison:
    """The whole answer."""

    traffic: Traffic
    scheduler: str
    alike: int
    """Steps that were decided as recorded, of all."""
    first_difference: str | None
    step_time: StepTime
    clients: Clients
    measured: dict[str, float | None]
    predicted: Figures
    """As it was, by the twin."""
    rows: list[Outcome]
    doubts: list[str]

    def error(self, name: str) -> float | None:
        """The twin's relative error about the figure as it was; None: not known."""
        measured, predicted = self.measured[name], self.predicted[name]
        if not measured or predicted is None:
            return None
        return predicted.middle / measured - 1


def compare(
    file: Path,
    texts: Iterable[str],
    scheduler_for: Callable[[Traffic], Scheduler],
    on_progress: Callable[[int], None] = lambda replays: None,
) -> Comparison:
    """Raises WhatIfError, RecordingError or OSError. on_progress: takes the number of replays."""
    settings = parsed(texts)
    traffic, doubts = traffic_of(file)
    options = recorded_options(traffic)
    check(settings, options, traffic)
    if len(traffic.steps) < _LEAST_STEPS:
        raise WhatIfError(f"{file}: {len(traffic.steps)} steps are too few to fit a step time to")
    clients = link_followers(list(traffic.calls.values()))
    scheduler = scheduler_for(traffic)
    doubts += _fitted_to(scheduler, settings, options, traffic)
    replays = 0

    def ask(changes: Changes, **further: Any) -> Any:
        return scheduler.ask(
            options=options | changes,
            block_size=options["block_size"],
            door=traffic.door,
            largest=traffic.largest,
            until=traffic.end,
            **further,
        )

    def served(changes: Changes) -> list[dict[str, float | None]]:
        nonlocal replays
        found = []
        for document in documents:
            for shift in SHIFTS:
                found.append(ask(changes, duration=document, shift=shift))
                replays += 1
                on_progress(replays)
        return found

    contents = ask({}, steps=[step.actions for step in traffic.steps])
    step_time = _step_time(traffic, contents)
    documents = [
        step_time.document(chunks=chunks)
        for chunks in ((True, False) if step_time.is_ambiguous else (None,))
    ]
    alike, first = _alike(traffic, contents)
    comparison = Comparison(
        traffic=traffic,
        scheduler=f"{scheduler.name} {scheduler.version}",
        alike=alike,
        first_difference=first,
        step_time=step_time,
        clients=clients,
        measured=traffic.measured(),
        predicted={},
        rows=[],
        doubts=[*doubts, *_doubts(traffic, scheduler, alike, step_time)],
    )
    comparison.predicted = _ranges(served({}))
    comparison.rows = [_outcome(comparison, each, served(each.changes)) for each in settings]
    return comparison


def _fitted_to(
    scheduler: Scheduler, settings: Iterable[Setting], options: Changes, traffic: Traffic
) -> Iterable[str]:
    """Take away the recorded options that this scheduler lacks, and yield a doubt about them.

    Raises WhatIfError if a setting changes one that it lacks.
    """
    known = scheduler.options
    for setting in settings:
        for name in setting.changes:
            if name not in known:
                raise WhatIfError(
                    f"--set {setting.name}: {scheduler.name} {scheduler.version} has no option "
                    f"{name}: give the Python of a server that has it, --python "
                    "/path/to/server/bin/python"
                )
    assert traffic.hello is not None
    server = f"{traffic.hello.server} {traffic.hello.server_version}"
    here = f"{scheduler.name} {scheduler.version}"
    if server != here:
        yield f"recorded with {server}, scheduled here by {here}"
    lacks = sorted(options.keys() - set(known))
    for name in lacks:
        del options[name]
    if lacks:
        yield f"{here} lacks these recorded options, which are left out: {', '.join(lacks)}"


def _alike(traffic: Traffic, contents: Sequence[tuple[Row, int, int]]) -> tuple[int, str | None]:
    first, alike = None, 0
    for at, (step, (row, running, waiting)) in enumerate(
        zip(traffic.steps, contents, strict=True), 1
    ):
        ours = (int(row[2]), int(row[0]), running, waiting)
        theirs = (step.prefill, step.decode, step.running, step.waiting)
        if ours == theirs:
            alike += 1
        elif first is None:
            words = "{} prompt tokens, {} decodes, {} running, {} waiting"
            first = f"step {at:,}: {words.format(*ours)}; recorded were {words.format(*theirs)}"
    return alike, first


def _step_time(traffic: Traffic, contents: Sequence[tuple[Row, int, int]]) -> StepTime:
    """Fitted to the steps with the recorded contents: another decision takes another time."""
    rows, seconds, ends = [], [], []
    for step, (row, _, _) in zip(traffic.steps, contents, strict=True):
        took = step.duration
        if took > 0 and (row[2] or row[0]) and (row[2], row[0]) == (step.prefill, step.decode):
            rows.append(row)
            seconds.append(took)
            ends.append(step.end)
    if len(rows) < _LEAST_STEPS:
        raise WhatIfError(
            f"only {len(rows)} steps have the recorded contents, too few to fit a step time to: "
            "the recording begins in the middle, or its server schedules otherwise"
        )
    return fitted(rows, seconds, ends, [step.gap for step in traffic.steps if step.gap is not None])


def _doubts(
    traffic: Traffic, scheduler: Scheduler, alike: int, step_time: StepTime
) -> Iterable[str]:
    hello = traffic.hello
    assert hello is not None
    share = alike / len(traffic.steps)
    is_same = (scheduler.name, scheduler.version) == (hello.server, hello.server_version)
    if is_same and share < _LEAST_ALIKE and traffic.begins_empty:
        raise WhatIfError(
            f"only {100 * share:.0f} % of the steps are decided as recorded, so these figures "
            "would be about another server: its scheduler has options that are not recorded"
        )
    if step_time.r2 < _GOOD_FIT:
        yield (
            f"the step time fits badly (R² {step_time.r2:.2f}): other work may have shared the "
            "machine, and latencies are as uncertain as the self-check says"
        )
    if step_time.is_ambiguous:
        yield (
            f"{100 * step_time.together:.0f} % of the chunks were admissions too, so which of the "
            "two takes the time is not known: ranges cover both"
        )


def _ranges(found: Sequence[dict[str, float | None]]) -> Figures:
    ranges: Figures = {}
    for name in FIGURES:
        known = [value for each in found if (value := each[name]) is not None]
        ranges[name] = Range(min(known), median(known), max(known)) if known else None
    return ranges


def _outcome(
    comparison: Comparison, setting: Setting, found: Sequence[dict[str, float | None]]
) -> Outcome:
    outcome = Outcome(setting, _ranges(found))
    for name, new in outcome.figures.items():
        old, error = comparison.predicted[name], comparison.error(name)
        if new is None or old is None:
            continue
        margin = abs(error or 0.0) * old.middle
        if name == "preemptions":
            margin = max(margin, _LEAST_COUNT)
        overlap = new.low <= old.high and old.low <= new.high
        if overlap or abs(new.middle - old.middle) <= margin:
            outcome.within_error.add(name)
    for name, whole, note in (
        (
            *("larger_steps", 1),
            "of its steps would be larger than any recorded, so their time is extrapolated",
        ),
        (
            *("unserved", len(comparison.traffic.calls)),
            "of the calls would have no token by the end of the recording: the queue grows, and "
            "their times are not in the table",
        ),
    ):
        share = max(each[name] or 0.0 for each in found) / max(1, whole)
        if share > _MANY:
            outcome.notes.append(f"{setting.name}: {100 * share:.0f} % {note}")
    return outcome
