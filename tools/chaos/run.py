"""Lays the attacks on a server one after another while unrelated clients go on."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.process import ROOT
from tools.chaos.attacks import ATTACKS
from tools.chaos.beside import Probe, Survivors, Times, Watch
from tools.chaos.frame import Say
from tools.chaos.limits import (
    FRESH_SECONDS,
    MORE_P99_SECONDS,
    MOST_UNDISTURBED_SECONDS,
    ROUNDS,
    SETTLE_SECONDS,
)
from tools.chaos.report import (
    ASKED,
    Asked,
    Baseline,
    Ending,
    Round,
    closing,
    heading,
    missed,
    missed_at_the_end,
    row,
    times_missed,
)
from tools.chaos.server import ChaosServer, chaos_server
from tools.chaos.target import NotHeldError, Target

_CALM_SECONDS = 4.0
"""Without an attack, at least, at first; 80 times of each question."""
_CALM_SHARE = 0.03
"""Share of the time of all attacks, if that is more."""
_PAUSE_SHARE = 0.15
"""Share of an attack's time that passes without one after it."""
_NICENESS = 10
_GRACE_SECONDS = 3.0
"""An attack that waits for an answer may end this much after its time."""
_DESCRIPTORS = 4096
_GAUGES: tuple[tuple[str, dict[str, str]], ...] = (
    ("kvscope_kv_blocks", {"state": "active"}),
    ("kvscope_kv_ledger_imbalance_blocks", {}),
)


def run(
    attacks: Sequence[str],
    seconds: float,
    folder: Path,
    say: Say,
    *,
    more_p99_seconds: float = MORE_P99_SECONDS,
    seed: int = 0,
) -> list[str]:
    """Every limit that was missed; nothing: all held.

    seconds: for all attacks together, without the server's start and without the further rounds of
    an attack that misses a time. more_p99_seconds: what an attack may add. seed: of the order of
    the attacks; 0: as they are given.
    """
    order = list(attacks)
    if seed:
        random.Random(seed).shuffle(order)
    with chaos_server(folder) as server:
        calm_seconds = max(_CALM_SECONDS, seconds * _CALM_SHARE)
        chaos = _Run(server, seconds / len(order), more_p99_seconds, say)
        return chaos.all(order, calm_seconds)


class _Run:
    def __init__(
        self, server: ChaosServer, seconds: float, more_p99_seconds: float, say: Say
    ) -> None:
        """seconds: of one attack, with the pause after it."""
        self._server = server
        self._more_p99_seconds = more_p99_seconds
        self._attack_seconds = seconds * (1 - _PAUSE_SHARE)
        self._pause_seconds = seconds * _PAUSE_SHARE
        self._say = say
        self._survivors = Survivors(server)
        self._probe = Probe(server)
        self._watch = Watch(server)

    def all(self, attacks: Sequence[str], calm_seconds: float) -> list[str]:
        wrong: list[str] = []
        try:
            time.sleep(0.5)
            self._probe.take()  # the first requests pay for what is made once
            time.sleep(calm_seconds)
            baseline = Baseline(
                p99=_p99(self._probe.take()),
                more_p99_seconds=self._more_p99_seconds,
                figures=self._watch.take(),
            )
            self._say(heading(baseline))
            for name in attacks:
                rounds = self._attack(name, baseline)
                self._say(row(name, rounds, baseline))
                wrong += [f"{name}: {text}" for text in missed(rounds, baseline)]
        finally:
            self._probe.stop()
            self._survivors.stop()
            self._watch.stop()
        ending = self._settled(baseline)
        self._say(closing(ending, baseline))
        return wrong + missed_at_the_end(ending, baseline)

    def _attack(self, name: str, baseline: Baseline) -> list[Round]:
        rounds = [self._round(name, baseline.p99)]
        while times_missed(rounds, baseline) and len(rounds) < ROUNDS:
            rounds.append(self._round(name, self._fresh(baseline.p99)))
        return rounds

    def _fresh(self, undisturbed: dict[Asked, float]) -> dict[Asked, float]:
        """The times of now, where they are longer."""
        self._probe.take()
        time.sleep(FRESH_SECONDS)
        now = _p99(self._probe.take())
        return {
            asked: max(former, min(MOST_UNDISTURBED_SECONDS, now[asked]))
            for asked, former in undisturbed.items()
        }

    def _round(self, name: str, undisturbed: dict[Asked, float]) -> Round:
        lines = self._server.log_lines()
        self._watch.take()
        self._probe.take()
        broken_promise = attack(name, self._server, self._attack_seconds)
        times = self._probe.take()
        time.sleep(self._pause_seconds)
        return Round(
            p99=_p99(times),
            undisturbed_p99=undisturbed,
            peak=self._watch.take(),
            log_lines=self._server.log_lines() - lines,
            failures=times.failures,
            broken_promise=broken_promise,
        )

    def _settled(self, baseline: Baseline) -> Ending:
        """The end, as soon as it is as it should be, or after the time for it."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            ending = self._ending()
            if not missed_at_the_end(ending, baseline) or time.monotonic() > deadline:
                return ending
            time.sleep(0.5)

    def _ending(self) -> Ending:
        return Ending(
            figures=self._server.figures(),
            gauges={name: self._server.metric(name, **labels) for name, labels in _GAUGES},
            num_compared=self._survivors.num_compared,
            differing=self._survivors.differing,
            failures=self._survivors.failures,
            tracebacks=self._server.log_text().count("Traceback"),
        )


def _p99(times: Times) -> dict[Asked, float]:
    return {asked: times.p99(asked) for asked in ASKED}


def attack(name: str, server: ChaosServer, seconds: float) -> str:
    """Returns the promise that the server broke; empty: none.

    It is a process of its own, so that its work does not slow the unrelated client's, and killed
    with what it started if it does not end by itself: to be kept waiting breaks no promise.
    """
    ports = (str(server.api_port), str(server.metrics_port))
    command = [sys.executable, "-m", "tools.chaos.run", name, *ports, str(seconds)]
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as attacker:
        try:
            _, errors = attacker.communicate(timeout=seconds + _GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        finally:
            if attacker.poll() is None:
                os.killpg(attacker.pid, signal.SIGKILL)
        return "" if attacker.returncode == 0 else errors.strip().splitlines()[-1]


def main() -> None:
    """The attacker. It yields the processor to the server, as one on another machine would."""
    name, api_port, metrics_port, seconds = sys.argv[1:]
    os.nice(_NICENESS)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    target = Target(int(api_port), int(metrics_port), time.monotonic() + float(seconds))
    try:
        ATTACKS[name](target)
    except NotHeldError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
