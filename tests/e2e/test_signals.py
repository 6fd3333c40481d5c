"""Signals in bursts to busy processes: they answer, go on serving, and end when asked to."""

import itertools
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from kvscope_events.stacks import HELD_SIGNAL
from tests.e2e.test_serve import SMALL, url_of
from tests.support.process import Process, forked_kvscope, kvscope
from tests.support.pythons import python_3_13
from tests.support.server import greedy
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.waits, pytest.mark.timeout(280), pytest.mark.nightly]

BURSTS = tuple(itertools.islice(itertools.cycle((1, 2, 3, 4, 5)), 10))
TITLE = "kvscope: the stacks of process"
URL = r"(http://[\d.]+:\d+)"
TARGETS = 20
BUSY_CHILD = """
import threading, time
def spin(depth):
    return spin(depth - 1) + 1 if depth else sum(range(50))
def forever():
    while True:
        spin(40)
for _ in range(3):
    threading.Thread(target=forever, daemon=True).start()
print("it is", "ready", flush=True)
forever()
"""
"""Busy threads, and no handler for any signal."""
SHOWS = "from kvscope.serving.stacks import show_stacks; show_stacks()"
HOLDS = "import re; print('it is', 'ready', flush=True); re.match('(a*)*b', 'a' * 60)"
"""A match that lasts for ever, with the interpreter's lock."""


@contextmanager
def clients(number: int, work: Callable[[], object]) -> Iterator[list[int]]:
    """That many threads at it; the list grows by one for each time that it was done."""
    stopping = threading.Event()
    done: list[int] = []

    def run() -> None:
        while not stopping.is_set():
            work()
            done.append(1)

    with ThreadPoolExecutor(number) as pool:
        running = [pool.submit(run) for _ in range(number)]
        try:
            yield done
        finally:
            stopping.set()
            for one in running:
                one.result()


def send_bursts(process: Process, number: signal.Signals, answered: Callable[[], int]) -> None:
    """Ten bursts of one to five, each answered before the next one comes."""
    for size in BURSTS:
        before = answered()
        for _ in range(size):
            process.send(number)
            time.sleep(0.01)
        wait_for(
            lambda before=before: answered() > before or process.popen.poll() is not None,  # type: ignore[misc]
            f"{number.name} is answered",
        )
        assert process.popen.poll() is None, process.text[-3000:]


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=30).status_code == 200
    except httpx.TransportError:
        return False


def shown(process: Process) -> int:
    return process.text.count(TITLE)


def get(url: str) -> None:
    assert httpx.get(url, timeout=30).status_code == 200


@pytest.fixture(
    params=["this", pytest.param("3.13", marks=(pytest.mark.nightly, pytest.mark.weekly))]
)
def python(request: pytest.FixtureRequest) -> str | None:
    """None: the one that runs the tests."""
    return None if request.param == "this" else python_3_13()


@contextmanager
def sidecar(folder: Path, python: str | None) -> Iterator[tuple[Process, str, Path]]:
    """Watches many targets of which none is there. Only another Python needs a start."""
    file = folder / "kvscope.yaml"
    entries = (f"- {{name: t{n}, events: ['ipc://{folder}/t{n}.sock']}}\n" for n in range(TARGETS))
    file.write_text("servers:\n" + "".join(entries))
    options = ("sidecar", "--port", "0", "--no-gpu", "--config", str(file))
    starting = kvscope(*options, python=python) if python else forked_kvscope(*options)
    with starting as process:
        url = process.find(URL)
        wait_for(lambda: answers(url), "it serves")
        yield process, url, file


def test_sigusr1_shows_the_stacks_of_a_busy_sidecar_which_goes_on(
    tmp_path: Path, python: str | None
) -> None:
    with (
        sidecar(tmp_path, python) as (process, url, _),
        clients(4, lambda: get(f"{url}/metrics")) as done,
    ):
        send_bursts(process, signal.SIGUSR1, lambda: shown(process))
        assert "(kvscope-stacks) (most recent call first)" in process.text
        before = len(done)
        wait_for(lambda: len(done) > before + 8, "it goes on serving")
    assert process.wait() != -signal.SIGSEGV


def test_several_sighups_at_once_leave_a_busy_sidecar_reloading(
    tmp_path: Path, python: str | None
) -> None:
    with (
        sidecar(tmp_path, python) as (process, url, file),
        clients(4, lambda: get(f"{url}/metrics")) as done,
    ):
        send_bursts(process, signal.SIGHUP, lambda: process.text.count("reloaded "))
        one = file.read_text().splitlines()[1]
        file.write_text(f"servers:\n{one}\n")
        process.send(signal.SIGHUP)
        wait_for(lambda: len(httpx.get(f"{url}/targets", timeout=30).json()) == 1, "the last file")
        before = len(done)
        wait_for(lambda: len(done) > before + 8, "it goes on serving")


def test_any_burst_of_signals_to_end_ends_a_busy_sidecar_in_order(
    tmp_path: Path, python: str | None
) -> None:
    ends = itertools.cycle((signal.SIGTERM, signal.SIGINT, signal.SIGINT))
    for size in range(1, 6):
        with (
            sidecar(tmp_path, python) as (process, url, _),
            clients(2, lambda url=url: answers(url)),  # type: ignore[misc]
        ):
            for number in itertools.islice(ends, size):
                process.send(number)
            assert process.wait() == 0, process.text[-3000:]
            assert "Traceback" not in process.text


def test_sigusr1_shows_the_stacks_of_a_busy_engine_which_answers_every_request() -> None:
    with forked_kvscope("engine", "serve", "--port", "0", "--no-gpu", *SMALL) as process:
        url = url_of(process)
        body = greedy("abc", max_tokens=40)

        def complete() -> None:
            answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
            assert answer.status_code == 200, answer.text

        with clients(4, complete) as done:
            send_bursts(process, signal.SIGUSR1, lambda: shown(process))
            assert re.search(r'File ".*step_loop.py", line \d+ in _run\n', process.text)
            before = len(done)
            wait_for(lambda: len(done) > before + 8, "it goes on serving")
        process.send(signal.SIGTERM)
        assert process.wait() == 0


def test_sigusr1_to_a_run_shows_its_own_stacks_where_it_would_end_the_command(
    python: str | None,
) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="kvscope-") as folder,  # whose path is short
        kvscope(
            *("run", "--port", "0", "--no-gpu", "--", sys.executable, "-c", BUSY_CHILD),
            python=python,
            KVSCOPE_RUN_DIR=folder,
        ) as process,
    ):
        url = process.find(rf"metrics: {URL}")
        process.find("(it is ready)")
        with clients(2, lambda: get(f"{url}/metrics")):
            send_bursts(process, signal.SIGUSR1, lambda: shown(process))
        assert "SIGUSR1 is not passed on: it would end the command" in process.text
        process.send(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM


def test_the_last_signal_shows_stacks_although_native_code_holds_the_interpreter() -> None:
    with kvscope("-n", "1", "-s", SHOWS, HOLDS, module="timeit") as process:
        process.find("(it is ready)")
        process.send(signal.SIGUSR1)
        time.sleep(1.0)
        assert shown(process) == 0, "its thread cannot run"
        process.popen.send_signal(HELD_SIGNAL)
        process.find(r"(most recent call first)")
        assert process.popen.poll() is None
