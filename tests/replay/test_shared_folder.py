"""Processes that start, record, save, stop and are killed, in any order, in one folder: what one of
them wrote is in a recording once nothing runs any more."""

import stat
import tempfile
from pathlib import Path
from shutil import rmtree

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder import flight
from kvscope_exporter.recorder.flight import Flight
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.recorder import Limits, Recorder
from kvscope_exporter.recorder.records import Mark

LIMITS = Limits(keep_ns=3600 * 10**9, keep_bytes=1 << 30)
MOST = 12
"""Recordings, so that none is removed for others."""


class Process:
    """One recorder; `kill` leaves its files as the kernel does."""

    def __init__(self, folder: Path, server: str) -> None:
        self.flight = Flight(LIMITS, folder, {}, Clock())
        self.recorder: Recorder = self.flight.recorder(server, [])
        self.recorder.write()

    def kill(self) -> None:
        for segment in self.recorder.ring.segments:
            segment.release()
        self.recorder.ring.segments.clear()


def marks(path: Path) -> set[str]:
    return {each.text for each in RecordingFile(path).records() if isinstance(each, Mark)}


class SharedFolder(RuleBasedStateMachine):
    processes = Bundle("processes")

    def __init__(self) -> None:
        super().__init__()
        flight.ADOPT_SECONDS = 60.0
        self.folder = Path(tempfile.mkdtemp(prefix="kvscope-shared-"))
        self.running: list[Process] = []
        self.written: set[str] = set()
        self.num_recordings = 0

    @rule(target=processes, server=st.sampled_from(["a/b", "a_b", "other"]))
    def start(self, server: str) -> Process:
        process = Process(self.folder, server)
        self.running.append(process)
        return process

    @rule(process=processes, begins=st.booleans())
    def note(self, process: Process, begins: bool) -> None:
        text = f"mark {len(self.written)}"
        process.recorder.mark("manual", text)
        process.recorder.write(ends=begins)
        self.written.add(text)

    @rule(process=processes)
    def save(self, process: Process) -> None:
        if self.num_recordings < MOST:
            self.num_recordings += 1
            process.flight.save(process.recorder, "manual", "by hand")

    @rule(process=consumes(processes))
    def stop(self, process: Process) -> None:
        self.running.remove(process)
        if self.num_recordings < MOST:
            self.num_recordings += 1
            process.flight.save(process.recorder, "exit", "the end")
            process.recorder.ring.clear()
        else:
            process.kill()

    @rule(process=consumes(processes))
    def kill(self, process: Process) -> None:
        self.running.remove(process)
        self.num_recordings += 1
        process.kill()

    @rule(size=st.integers(0, 50))
    def kill_one_that_saves(self, size: int) -> None:
        """It leaves a part that is not whole."""
        (self.folder / f"saved-other-20260101T{size:06}-exit.part").write_bytes(bytes(size))

    @invariant()
    def each_recorder_that_runs_has_its_segments(self) -> None:
        for process in self.running:
            paths = [each.path for each in process.recorder.ring.segments]
            assert paths
            assert all(path is not None and path.exists() for path in paths)

    @invariant()
    def recordings_are_whole_and_private(self) -> None:
        for path in self.folder.glob("*.kvsr"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            if path.name.startswith("saved-"):
                assert RecordingFile(path).opened

    def teardown(self) -> None:
        try:
            for process in self.running:
                process.kill()
            flight.MAX_SAVED, before = 100, flight.MAX_SAVED
            last = Flight(LIMITS, self.folder, {}, Clock())
            flight.MAX_SAVED = before
            names = {path.name for path in self.folder.iterdir()}
            assert names == {f"saved-{each.name}" for each in last.saved()}
            found = set[str]().union(*(marks(self.folder / name) for name in names))
            assert found == self.written
        finally:
            rmtree(self.folder)


SharedFolder.TestCase.settings = settings(deadline=None, max_examples=30, stateful_step_count=20)
test_no_process_loses_what_another_wrote = SharedFolder.TestCase
