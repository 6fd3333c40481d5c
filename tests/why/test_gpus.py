"""Memory that other processes took, from the history of a GPU; and that history's bounds."""

from dataclasses import replace

import pytest

from kvscope_exporter.answers.diagnosis.gpus import Growth, largest_growth
from kvscope_exporter.machine.gpu import (
    CHANGE_BYTES,
    DeviceSample,
    GpuHistory,
    GpuNote,
    GpuSample,
    Identity,
    Memory,
    ProcessList,
    ProcessUse,
)

GIB = 1 << 30
SECOND = 10**9
OWN = frozenset({1})


def note(seconds: float, **gib: float) -> GpuNote:
    """Processes by p and their pid."""
    held = {int(name[1:]): int(size * GIB) for name, size in gib.items()}
    used = sum(held.values())
    return GpuNote(round(seconds * SECOND), used, 24 * GIB - used, held, 0)


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ([], None),
        ([note(0, p1=20), note(100, p1=23)], None),  # the engine itself
        ([note(0, p1=15), note(100, p1=15, p7=2)], Growth(100 * SECOND, 7, 2 * GIB)),
        ([note(0, p7=2), note(100, p7=2)], None),  # it has had it all the time
        ([note(0, p7=2), note(100, p7=2.1)], None),  # little
        ([note(100, p7=2)], None),  # nothing is known of before
        ([note(0), note(90, p7=4), note(95)], None),  # it has given it back
        (
            [note(0), note(80, p7=1), note(90, p7=3.7), note(95, p7=4)],  # step by step
            Growth(90 * SECOND, 7, 4 * GIB),
        ),
        (
            [note(0), note(60, p7=4), note(70), note(90, p7=4)],  # twice: since the second time
            Growth(90 * SECOND, 7, 4 * GIB),
        ),
        (
            [note(0), note(60, p7=1), note(70, p7=1, p8=3)],  # the larger of two
            Growth(70 * SECOND, 8, 3 * GIB),
        ),
    ],
)
def test_the_largest_growth_that_is_held(notes: list[GpuNote], expected: Growth | None) -> None:
    assert largest_growth(notes, OWN, since_ns=0) == expected


def test_growth_before_the_window_does_not_count_and_within_it_counts_from_its_state() -> None:
    notes = [note(0), note(100, p7=4), note(900, p1=1, p7=4)]
    assert largest_growth(notes, OWN, since_ns=300 * SECOND) is None
    assert largest_growth(notes, OWN, since_ns=99 * SECOND) == Growth(100 * SECOND, 7, 4 * GIB)


def sample(seconds: int, used: int, *, up: bool = True) -> GpuSample:
    memory = Memory(total=24 * GIB, free=24 * GIB - used)
    device = DeviceSample(
        identity=Identity(index=0, uuid="GPU-a"),
        up=up,
        memory=memory,
        processes=ProcessList((ProcessUse(7, used),), memory, seconds * SECOND),
    )
    return GpuSample(
        taken_ns=seconds * SECOND,
        duration_seconds=0.0,
        driver_version=None,
        cuda_version=None,
        devices=(device,),
    )


def test_only_changes_are_noted() -> None:
    history = GpuHistory()
    for second in range(100):
        history.note(sample(second, GIB + (CHANGE_BYTES if second >= 50 else second)))
    assert [each.time_ns // SECOND for each in history.of("GPU-a")] == [0, 50]
    history.note(sample(100, 0, up=False))
    assert len(history.of("GPU-a")) == 2
    assert history.of("GPU-b") == []


def test_notes_are_forgotten_after_half_an_hour_but_for_the_state_then() -> None:
    history = GpuHistory()
    for minute in range(60):
        history.note(sample(60 * minute, GIB * (1 + minute % 2)))
    times = [each.time_ns // (60 * SECOND) for each in history.of("GPU-a")]
    assert times == [*range(28, 60)]


def test_notes_are_bounded() -> None:
    history = GpuHistory()
    for number in range(5000):
        one = sample(0, GIB * (1 + number % 2))
        history.note(replace(one, taken_ns=number))
    assert len(history.of("GPU-a")) == 2000
