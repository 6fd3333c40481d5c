"""A page that is replayed at its moment is the page that was served then, line by line."""

from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from kvscope_events.bus import Subscription
from kvscope_events.events import Batch
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder.format import RecordingError
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Playback
from kvscope_exporter.sources.pipeline import InProcessSource
from kvscope_exporter.targets.exporter import in_process
from tests.events.producers import SNAPSHOT, hello
from tests.replay.recorded import lines_of, make_recorder, record_load, save

SECOND = 10**9


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    path = tmp_path_factory.mktemp("recorded") / "load.kvsr"
    return path, record_load(path, seconds=6, seed=1)


def test_every_page_of_a_load_with_preemptions_is_the_same_again(
    load: tuple[Path, list[bytes]],
) -> None:
    path, served = load
    playback = Playback(RecordingFile(path))
    assert len(playback.index.pages) == len(served)
    for number, page in enumerate(served):
        playback.to_page(number)
        assert lines_of(playback.exporter.render()[0]) == lines_of(page)
    assert playback.file.problem is None
    last = served[-1].decode()
    assert 'kvscope_preemptions_total{cause="out_of_blocks"' in last
    preempted = next(line for line in last.splitlines() if "preemptions_total{" in line)
    assert float(preempted.rpartition(" ")[2]) > 0


def test_a_page_is_the_same_although_messages_arrive_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count(1)

    def heard(source: InProcessSource) -> int:
        """Each time it is read, another message has arrived."""
        return next(ticks) * SECOND

    def ignore(source: InProcessSource, at_ns: int | None) -> None:
        pass

    monkeypatch.setattr(InProcessSource, "last_message_ns", property(heard, ignore), raising=False)
    served = record_load(tmp_path / "load.kvsr", seconds=1, seed=3)
    playback = Playback(RecordingFile(tmp_path / "load.kvsr"))
    for number, page in enumerate(served):
        playback.to_page(number)
        assert lines_of(playback.exporter.render()[0]) == lines_of(page)
    assert b"kvscope_source_last_message_age_seconds" in served[-1]


def test_a_page_is_the_same_when_those_before_it_are_skipped(
    load: tuple[Path, list[bytes]],
) -> None:
    path, served = load
    for number in (len(served) // 2, len(served) - 1):
        playback = Playback(RecordingFile(path))
        playback.to_page(number)
        assert lines_of(playback.exporter.render()[0]) == lines_of(served[number])


def test_a_moment_between_two_pages_lies_between_them(load: tuple[Path, list[bytes]]) -> None:
    path, served = load
    playback = Playback(RecordingFile(path))
    pages = playback.index.pages
    middle = len(pages) // 2
    playback.to((pages[middle].wall_ns + pages[middle + 1].wall_ns) // 2)
    steps = [_steps(served[middle]), _steps(playback.exporter.render()[0])]
    assert steps[0] <= steps[1] <= _steps(served[middle + 1])
    assert _steps(served[middle]) < _steps(served[middle + 1])


def test_a_cut_recording_plays_up_to_the_cut_and_says_so(
    load: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    content = load[0].read_bytes()
    opened = 0
    for place in range(0, len(content) - 1, max(1, len(content) // 200)):
        cut = tmp_path / "cut.kvsr"
        cut.write_bytes(content[:place])
        with suppress(RecordingError):
            file = RecordingFile(cut)
            opened += 1
            list(file.records())
            assert file.problem is not None
    assert opened > 100


def test_a_damaged_recording_plays_up_to_the_damage(
    load: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    content = bytearray(load[0].read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged = tmp_path / "damaged.kvsr"
    damaged.write_bytes(content)
    playback = Playback(RecordingFile(damaged))
    assert playback.file.problem is not None
    assert 0 < len(playback.index.pages) < len(load[1])
    playback.to_page(len(playback.index.pages) - 1)
    page = lines_of(playback.exporter.render()[0])
    assert page == lines_of(load[1][len(playback.index.pages) - 1])


def test_what_arrives_while_a_page_is_rendered_is_on_its_replay(tmp_path: Path) -> None:
    recorder = make_recorder(None)
    readings = count(10**15, SECOND)  # time goes on with every look at the clock
    clock = Clock(lambda: next(readings), lambda: 10**18)
    subscription = Subscription(64)
    exporter = in_process(subscription, compat=[], clock=clock, recorder=recorder)
    arrived_ns = next(readings) + 5 * SECOND // 2  # after the page's moment, before its drain
    for seq in range(40):
        subscription.put(Batch(seq, seq, [hello(), SNAPSHOT], seq, arrived_ns))
    page = exporter.render()[0]
    save(recorder, tmp_path / "page.kvsr")
    playback = Playback(RecordingFile(tmp_path / "page.kvsr"))
    assert playback.index.pages[0].time_ns < arrived_ns
    playback.to_page(0)
    again = playback.exporter.render()[0]
    names = ("kvscope_events_total", "kvscope_source_last_message")
    seen, replayed = (
        [line for line in lines_of(text) if line.startswith(names)] for text in (page, again)
    )
    assert any('type="PoolSnapshot"' in line for line in seen)
    assert replayed == seen


def _steps(page: bytes) -> float:
    line = next(
        line
        for line in page.decode().splitlines()
        if line.startswith("kvscope_step_duration_seconds_count")
    )
    return float(line.rpartition(" ")[2])
