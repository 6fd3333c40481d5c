"""A parser is fuzzed in a process of its own, so that a hang or a lack of memory ends only that."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from tools.fuzz.run import Outcome, fuzz
from tools.fuzz.targets import TARGETS


def fuzz_aside(name: str, count: int, seed: int) -> Outcome:
    """The end of the process by a hang or by memory is a finding."""
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawning) as process:
        try:
            return process.submit(_fuzz, name, count, seed).result()
        except BrokenProcessPool:
            return Outcome(target=name, findings=["the process ended: a hang, or out of memory"])


def _fuzz(name: str, count: int, seed: int) -> Outcome:
    return fuzz(TARGETS[name], count, seed)
