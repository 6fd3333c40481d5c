"""Signals that a thread waits for: none is lost, none hangs, and none reaches a handler."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kvscope.cli.interrupts import Stop
from kvscope.serving.reloading import hangups, reloading
from kvscope.serving.signal_thread import SignalThread
from tests.support.waiting import wait_for

MANY = 2000


@pytest.fixture
def waiting() -> Iterator[SignalThread]:
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    thread = SignalThread(signal.SIGUSR2, "waiting")
    yield thread
    thread.release()
    assert signal.signal(signal.SIGUSR2, before) is signal.SIG_DFL
    assert signal.SIGUSR2 not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@contextmanager
def busy(*numbers: signal.Signals) -> Iterator[None]:
    """Threads compete for the interpreter, and another process sends the signals all the time: the
    main thread often gets one while it waits to go on in the middle of a function."""
    stopping = threading.Event()

    def spin() -> None:
        while not stopping.is_set():
            continue

    threads = [threading.Thread(target=spin) for _ in range(3)]
    for thread in threads:
        thread.start()
    send = (
        f"import os, time\nfor _ in range({MANY}):\n"
        f" [os.kill({os.getpid()}, n) for n in {[int(n) for n in numbers]}]\n time.sleep(0.0005)"
    )
    try:
        with subprocess.Popen([sys.executable, "-c", send]) as sender:
            while sender.poll() is None:
                time.sleep(0.2)
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def test_hangups_in_quick_succession_do_not_hang_and_the_last_one_counts() -> None:
    newest = 0
    seen: list[int] = []
    with (
        hangups(wanted=True) as hangup,
        reloading(hangup, lambda: seen.append(newest)),
        busy(signal.SIGHUP),
    ):
        newest = 1
        os.kill(os.getpid(), signal.SIGHUP)
        wait_for(lambda: seen[-1:] == [1], "the last one is answered")


def test_a_signal_that_came_before_there_is_an_action_counts(waiting: SignalThread) -> None:
    os.kill(os.getpid(), signal.SIGUSR2)
    taken = threading.Event()
    waiting.start(taken.set)
    assert taken.wait(30)


def test_a_thread_that_does_not_hold_the_signal_sends_it_on(waiting: SignalThread) -> None:
    taken = threading.Event()
    waiting.start(taken.set)

    def unheld() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)

    threading.Thread(target=unheld).start()
    wait_for(taken.is_set, "handlers run on this thread")


def test_stopping_waits_for_the_action_under_way(waiting: SignalThread) -> None:
    done: list[str] = []

    def slow() -> None:
        time.sleep(0.3)
        done.append("done")

    began = threading.Event()
    waiting.start(lambda: (began.set(), slow())[1])
    os.kill(os.getpid(), signal.SIGUSR2)
    # A thread that another test left may get the signal; then the main thread has to run to send
    # it on, and must not sleep until then.
    wait_for(began.is_set, "the action begins")
    waiting.stop()
    assert done == ["done"]


def test_interrupts_and_terminations_at_once_are_noted_by_a_load() -> None:
    """The second of a kind ends it at once, so here each is ignored after the first."""
    before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        with Stop() as stop, busy(signal.SIGINT, signal.SIGTERM):
            assert stop.is_set()
            assert stop.exit_code in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
