"""Feeds a parser with inputs; finds what it raises, what takes long, and memory that grows."""

import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tools.fuzz.target import Parse, Target

INPUT_SECONDS = 2.0
"""Processor time of one input of at most 64 KiB."""
STOP_SECONDS = 10.0
"""Processor time after which an input is given up."""
GROWTH_MIB = 256
"""Peak of the process's memory after the first hundred inputs, over what it had then."""
_WARM_UP_INPUTS = 100
_KIB_IN_MIB = 1024
_PEAK = Path("/proc/self/clear_refs")
_FORGET_PEAK = "5"


class FindingError(AssertionError):
    """A parser did something forbidden other than raising an undeclared error."""


class GivenUpError(BaseException):
    """An input took too long; no parser may catch it."""


class Feeder:
    """A parser and what it did."""

    def __init__(self, target: Target, parse: Parse) -> None:
        self.target = target
        self.answers: set[bool] = set()
        """True for accepted."""
        self._parse = parse
        self._fed = 0
        self._begun_with = 0

    def feed(self, content: bytes) -> None:
        """Raises FindingError, and what the parser raises."""
        if self._fed == _WARM_UP_INPUTS:
            self._begun_with = _peak_mib_from_now()
        self._fed += 1
        self.answers.add(_answer(self._parse, content))

    def conclude(self) -> None:
        """Raises FindingError for what only many inputs show."""
        if not self._begun_with:
            return
        growth = _peak_mib() - self._begun_with
        if growth > GROWTH_MIB:
            raise FindingError(f"memory grew by {growth} MiB, limit {GROWTH_MIB} MiB")
        if self.answers != {False, True}:
            raise FindingError(f"all {self._fed} inputs were answered {self.answers}")


@contextmanager
def feeding(target: Target) -> Iterator[Feeder]:
    """Open the parser. Inside, a timer of processor time raises GivenUpError on the main thread."""

    def give_up(number: int, frame: FrameType | None) -> NoReturn:
        raise GivenUpError

    former = signal.signal(signal.SIGVTALRM, give_up)
    try:
        with target.opened() as parse:
            feeder = Feeder(target, parse)
            yield feeder
            feeder.conclude()
    finally:
        signal.signal(signal.SIGVTALRM, former)


def _answer(parse: Parse, content: bytes) -> bool:
    started = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, STOP_SECONDS)
    try:
        accepted = parse(content)
    except GivenUpError:
        raise FindingError(f"given up after {STOP_SECONDS:g} s of processor time") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    seconds = time.process_time() - started
    if seconds > INPUT_SECONDS:
        raise FindingError(f"{seconds:.1f} s of processor time, limit {INPUT_SECONDS:g} s")
    return accepted


def _peak_mib_from_now() -> int:
    """Forget the peak of what ran before in this process, which would hide what grows."""
    _PEAK.write_text(_FORGET_PEAK)
    return _peak_mib()


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // _KIB_IN_MIB
