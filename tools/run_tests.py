"""Runs the tests in lanes, several beside each other; what fails there is run again, alone.

    python -m tools.run_tests [--nightly | --weekly] [--times FILE] [--beside COMMAND]
                              [PATH...] [OPTION...]

A test that fails in a lane and passes when run again with nothing beside it is named at the end and
counted as passed: two cores were too few for it. A second failure is a failure, and so is a worker
that crashed, a file that cannot be collected, or too many failures to be noise. COMMAND is a check
that runs beside all lanes; what it prints comes after theirs.
"""

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

import pytest

MOST_RUN_AGAIN = 20
"""More failures than this are no noise."""
SLOWEST = 20
"""Tests named at the end."""
LISTED_SECONDS = 3
"""Files that take longer are in the table by which tests/conftest.py sorts."""
_PHASES = {"setup", "call", "teardown"}
_PASSED, _FAILED, _NONE_SELECTED = (int(code) for code in (0, 1, 5))


@dataclass(frozen=True, slots=True)
class Lane:
    """Tests that one pytest runs."""

    name: str
    processes: int
    """0: the process of pytest itself."""
    marks: str
    named_in: str = ""
    """Pattern of the files that have such tests; only these are collected. Empty: all."""

    def files(self, paths: Sequence[str]) -> list[str]:
        if not self.named_in:
            return list(paths)
        return [file for path in paths for file in _files_with(path, re.compile(self.named_in))]


TEST = (
    (
        Lane("main", 3, "not (nightly or waits or vllm)"),  # of two cores: some wait
        Lane("waits", 4, "waits and not nightly", r"mark\.waits\b"),
        Lane("vllm", 0, "vllm and not nightly", r"mark\.vllm\b"),
    ),
)
NIGHTLY = (
    (
        Lane(
            "long",
            3,  # of two cores: some wait
            "nightly and not (waits or vllm or sglang or ray or chaos or timed or weekly)",
            r"mark\.nightly\b",
        ),
        Lane("waits", 2, "nightly and waits", r"mark\.waits\b"),
    ),
    # Starts of a vLLM are work for one core, and its requests wait. An SGLang's scheduler takes a
    # core even when it is idle: one at a time.
    (
        Lane("vllm", 2, "nightly and vllm and not weekly", r"mark\.vllm\b"),
        Lane("sglang", 0, "nightly and sglang and not weekly", r"mark\.sglang\b"),
    ),
    # Last, with nothing beside it: these measure times.
    (Lane("chaos and timed", 0, "chaos or timed", r"mark\.(chaos|timed)\b"),),
)
WEEKLY = (
    (
        Lane(
            "long",
            3,
            "(weekly or hypothesis) and not (vllm or sglang or ray or chaos or timed)",
            r"mark\.weekly\b|(?m:^from hypothesis)",
        ),
    ),
    (Lane("vllm", 2, "weekly and vllm", r"mark\.weekly\b"),),
    (Lane("sglang", 0, "weekly and sglang", r"mark\.weekly\b"),),
    (Lane("ray", 0, "weekly and ray", r"mark\.weekly\b"),),
)


@dataclass(slots=True, eq=False)  # a plugin must have a hash
class Report:
    """Results of one pytest."""

    failed: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Tests during which a worker crashed, and files that could not be collected."""
    seconds: dict[str, float] = field(default_factory=dict)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration
        if not report.failed:
            return
        if report.when not in _PHASES:  # xdist: the worker has crashed
            self.broken.append(name)
        elif name not in self.failed:
            self.failed.append(name)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.append(report.nodeid)


@dataclass(slots=True)
class Running:
    """A pytest in a process of its own."""

    lane: Lane
    process: "subprocess.Popen[bytes]"
    output: IO[bytes] | None
    report: Path
    started: float

    def end(self) -> tuple[int, Report]:
        status = self.process.wait()
        if self.output is not None:
            _show(self.output)
        seconds = time.monotonic() - self.started
        print(f"kvscope: {self.lane.name}: ended with {status} in {seconds:.0f} s", flush=True)
        try:
            return status, Report(**json.loads(self.report.read_text()))
        except FileNotFoundError:  # it ended before it had anything to report
            return status or _FAILED, Report(broken=[f"pytest of {self.lane.name}"])


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--lane"]:
        return _pytest(Path(arguments[1]), arguments[2:])
    nightly, arguments = _taken("--nightly", arguments, 0)
    weekly, arguments = _taken("--weekly", arguments, 0)
    times, arguments = _taken("--times", arguments, 1)
    beside, arguments = _taken("--beside", arguments, 1)
    paths = list(itertools.takewhile(lambda text: not text.startswith("-"), arguments))
    options = arguments[len(paths) :]
    signal.signal(signal.SIGTERM, _exit)
    # One thread for each process: two with two threads each would wait for each other.
    os.environ["OMP_NUM_THREADS"] = "1"
    # Hundreds of processes would compile what they import, each by itself.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if weekly is not None or nightly is not None:
        profile = "nightly" if weekly is None else "weekly"
        os.environ["KVSCOPE_HYPOTHESIS_PROFILE"] = profile
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kvscope-tests-") as folder:
        os.environ["KVSCOPE_TEST_FORKS"] = folder  # what loads torch once, for all processes
        run = Run(Path(folder), paths or ["tests"], options)
        with run.checked(shlex.split(beside[0]) if beside else ()):
            if os.environ.get("CI") == "true" and weekly is None and nightly is None:
                _compile(paths or ["tests"])
            for lanes in WEEKLY if weekly is not None else TEST if nightly is None else NIGHTLY:
                run.beside(lanes)
        run.again()
    run.conclude(time.monotonic() - started)
    if times is not None:
        Path(times[0]).write_text(_table(run.seconds))
    return run.status


class Run:
    """The lanes of one target, and the results of their tests."""

    def __init__(self, folder: Path, paths: Sequence[str], options: Sequence[str]) -> None:
        self._folder = folder
        self._paths = paths
        self._options = options
        self._to_run_again: list[str] = []
        self._passed_alone: list[str] = []
        self._statuses: set[int] = set()
        self.seconds: dict[str, float] = {}

        self._check_failed = False

    @property
    def status(self) -> int:
        if self._check_failed:
            return _FAILED
        if self._statuses <= {_PASSED, _NONE_SELECTED}:
            return _PASSED if _PASSED in self._statuses else _NONE_SELECTED
        return _FAILED

    @contextmanager
    def checked(self, command: Sequence[str]) -> Iterator[None]:
        """Run a check meanwhile; its failure is one of the run."""
        if not command:
            yield
            return
        with tempfile.TemporaryFile() as output, ExitStack() as stack:
            process = stack.enter_context(
                subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            )
            stack.callback(process.terminate)
            yield
            self._check_failed = process.wait() != _PASSED
            _show(output)
            print(f"kvscope: {shlex.join(command)}: ended with {process.returncode}", flush=True)

    def beside(self, lanes: Sequence[Lane]) -> None:
        """The first lane writes to the terminal, the others at their end."""
        with ExitStack() as stack:
            running = [
                stack.enter_context(self._started(lane, files, shown=not number))
                for number, (lane, files) in enumerate(self._with_files(lanes))
            ]
            for each in running:
                status, report = each.end()
                noise = status == _FAILED and not report.broken and bool(report.failed)
                if noise and len(report.failed) <= MOST_RUN_AGAIN:
                    self._to_run_again += report.failed
                else:
                    self._note(status, report)
                self._time(report)

    def again(self) -> None:
        if not self._to_run_again:
            return
        print("kvscope: running again, alone:", *self._to_run_again, sep="\n  ", flush=True)
        lane = Lane("again", 0, "")
        with self._started(lane, self._to_run_again, shown=True) as running:
            status, report = running.end()
        self._note(status, report)
        self._passed_alone = [
            name for name in self._to_run_again if name not in {*report.failed, *report.broken}
        ]

    def conclude(self, seconds: float) -> None:
        slowest = sorted(self.seconds.items(), key=lambda item: -item[1])[:SLOWEST]
        print(f"kvscope: the slowest of {len(self.seconds)} tests:")
        print(*(f"{took:8.1f} s  {name}" for name, took in slowest), sep="\n")
        if self._passed_alone:
            print("kvscope: passed only when run alone:", *self._passed_alone, sep="\n  ")
        if self.status == _NONE_SELECTED:
            print("kvscope: no test selected; others: `make test`, `make nightly`, `make weekly`")
        else:
            ended = "failed" if self.status else "passed"
            print(f"kvscope: {ended} in {seconds // 60:.0f} min {seconds % 60:.0f} s", flush=True)

    def _with_files(self, lanes: Sequence[Lane]) -> list[tuple[Lane, list[str]]]:
        named = [(lane, lane.files(self._paths)) for lane in lanes]
        found = [(lane, files) for lane, files in named if files]
        if not found:
            self._statuses.add(_NONE_SELECTED)
        return found

    @contextmanager
    def _started(self, lane: Lane, files: Sequence[str], *, shown: bool) -> Iterator[Running]:
        report = self._folder / f"{lane.name}.json"
        options = [*files, *(() if lane.name == "again" else self._options)]
        if lane.processes:
            # Files in the order in which they are collected: the slowest first.
            options += ["-n", str(lane.processes), "--dist", "loadfile", "--no-loadscope-reorder"]
        if lane.marks:
            options += ["-m", lane.marks]
        # Each pytest has a cache of its own: two that write one file would spoil it.
        options += ["-o", f"cache_dir=.pytest_cache/{lane.name.replace(' ', '-')}"]
        # -P: this folder is nothing that tests may import from.
        command = [sys.executable, "-P", __file__, "--lane", str(report), *options]
        with ExitStack() as stack:
            output = None if shown else stack.enter_context(tempfile.TemporaryFile())
            process = stack.enter_context(
                subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            )
            stack.callback(process.terminate)
            yield Running(lane, process, output, report, time.monotonic())

    def _note(self, status: int, report: Report) -> None:
        self._statuses.add(status)
        if report.broken:
            print("kvscope: crashed or not collected:", *report.broken, sep="\n  ", flush=True)

    def _time(self, report: Report) -> None:
        for name, seconds in report.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def _compile(paths: Sequence[str]) -> None:
    """In a fresh clone each process of each lane would rewrite the assertions of all files."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", *paths]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # a lane shows what is wrong


def _pytest(path: Path, options: list[str]) -> int:
    sys.argv[0] = "pytest"
    report = Report()
    status = pytest.main(options, plugins=[report])
    path.write_text(
        json.dumps({"failed": report.failed, "broken": report.broken, "seconds": report.seconds})
    )
    return int(status)


def _files_with(path: str, pattern: re.Pattern[str]) -> list[str]:
    """Test files below the path that have the pattern; of `FILE::TEST`, the file decides."""
    place = Path(path.partition("::")[0])
    if place.is_file():
        return [path] if pattern.search(place.read_text()) else []
    return [
        str(file) for file in sorted(place.rglob("test_*.py")) if pattern.search(file.read_text())
    ]


def _table(seconds: dict[str, float]) -> str:
    files: dict[str, float] = {}
    for name, took in seconds.items():
        file = name.partition("::")[0]
        files[file] = files.get(file, 0.0) + took
    slow = sorted((-took, file) for file, took in files.items() if took >= LISTED_SECONDS)
    return "".join(f"{-took:4.0f} {file}\n" for took, file in slow)


def _taken(name: str, arguments: list[str], values: int) -> tuple[list[str] | None, list[str]]:
    """The values after this option, which comes before all that is pytest's, and the rest."""
    if arguments[:1] != [name]:
        return None, arguments
    return arguments[1 : 1 + values], arguments[1 + values :]


def _show(output: IO[bytes]) -> None:
    output.seek(0)
    sys.stdout.flush()
    sys.stdout.buffer.write(output.read())


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
