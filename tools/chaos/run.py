"""Lays the attacks on a server one after another while unrelated clients go on."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tools.chaos.attacker import attacking
from tools.chaos.limits import (
    FRESH_SECONDS,
    MORE_P99_SECONDS,
    MOST_UNDISTURBED_SECONDS,
    ROUNDS,
    SETTLE_SECONDS,
)
from tools.chaos.probe import Probe, Question, Times
from tools.chaos.report import (
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
from tools.chaos.survivors import Survivors
from tools.chaos.watch import Watch

_CALM_SECONDS = 4.0
"""Without an attack, at least, at first; 80 times of each question."""
_CALM_SHARE = 0.03
"""Share of the time of all attacks, if that is more."""
_PAUSE_SHARE = 0.15
"""Share of an attack's time that passes without one after it."""
_GAUGES: tuple[tuple[str, dict[str, str]], ...] = (
    ("kvscope_kv_blocks", {"state": "active"}),
    ("kvscope_kv_ledger_imbalance_blocks", {}),
)

Say = Callable[[str], None]


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
            baseline = self._baseline(self._probe.take())
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

    def _baseline(self, times: Times) -> Baseline:
        return Baseline(
            health_p99=times.p99("health"),
            completion_p99=times.p99("completion"),
            more_p99_seconds=self._more_p99_seconds,
            figures=self._watch.take(),
        )

    def _attack(self, name: str, baseline: Baseline) -> list[Round]:
        rounds = [self._round(name, baseline)]
        while times_missed(rounds, baseline) and len(rounds) < ROUNDS:
            rounds.append(self._round(name, self._fresh(baseline)))
        return rounds

    def _fresh(self, baseline: Baseline) -> Baseline:
        """The same with the times of now, where they are longer."""
        self._probe.take()
        time.sleep(FRESH_SECONDS)
        times = self._probe.take()

        def longer(former: float, question: Question) -> float:
            return max(former, min(MOST_UNDISTURBED_SECONDS, times.p99(question)))

        return replace(
            baseline,
            health_p99=longer(baseline.health_p99, "health"),
            completion_p99=longer(baseline.completion_p99, "completion"),
        )

    def _round(self, name: str, undisturbed: Baseline) -> Round:
        lines = self._server.log_lines()
        self._watch.take()
        self._probe.take()
        with attacking(name, self._server, self._attack_seconds) as attacker:
            broken_promise = attacker.wait()
        times = self._probe.take()
        time.sleep(self._pause_seconds)
        return Round(
            health_p99=times.p99("health"),
            completion_p99=times.p99("completion"),
            undisturbed_health_p99=undisturbed.health_p99,
            undisturbed_completion_p99=undisturbed.completion_p99,
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
