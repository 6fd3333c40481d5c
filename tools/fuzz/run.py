"""Feeds a parser with inputs; finds what it raises, what takes long, and memory that grows."""

import faulthandler
import hashlib
import itertools
import os
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tools.fuzz.target import Inputs, Parse, Target

INPUT_SECONDS = 2.0
"""Processor time of one input of at most 64 KiB."""
STOP_SECONDS = 10.0
"""Processor time after which an input is given up."""
HANG_SECONDS = 120.0
"""After these, what cannot be interrupted ends the process, with its stacks on stderr."""
GROWTH_MIB = 256
"""Peak of the process's memory after the first hundred inputs, over what it had then."""
FOLDER_VARIABLE = "KVSCOPE_FUZZ_DIR"
"""Names the folder for inputs that are findings; otherwise a temporary one."""
MAX_FINDINGS = 5
"""A target is left after so many."""
_WARM_UP_INPUTS = 100
_INPUTS_A_GUARD = 200
_KIB_IN_MIB = 1024
_PEAK = Path("/proc/self/clear_refs")
_FORGET_PEAK = "5"


class GivenUpError(BaseException):
    """An input took too long; no parser may catch it."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the inputs of a target did."""

    target: str
    inputs: int = 0
    taken: int = 0
    slowest_seconds: float = 0.0
    growth_mib: int = 0
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.target:<20} {self.inputs:>8} inputs, {self.taken:>7} taken, slowest "
            f"{self.slowest_seconds * 1e3:>6.1f} ms, {self.growth_mib:>+4} MiB, "
            f"{len(self.findings)} findings"
        )


def fuzz(target: Target, count: int, seed: int = 0) -> Outcome:
    """Feed the whole corpus, and mutations of it up to `count` inputs.

    An input that is a finding is written into the corpus, to be committed with its fix.
    """
    outcome = Outcome(target=target.name)
    inputs = Inputs(target, seed)
    kept = inputs.kept()
    begun_with = 0
    with target.opened() as parse, _interrupting():
        for content in itertools.chain(kept, itertools.islice(inputs, max(0, count - len(kept)))):
            if outcome.inputs % _INPUTS_A_GUARD == 0:
                faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            if outcome.inputs == _WARM_UP_INPUTS:
                begun_with = _peak_mib_from_now()
            _feed(parse, content, outcome, target.folder)
            if len(outcome.findings) >= MAX_FINDINGS:
                break
        faulthandler.cancel_dump_traceback_later()
    outcome.growth_mib = _peak_mib() - begun_with if begun_with else 0
    if outcome.growth_mib > GROWTH_MIB:
        outcome.findings.append(f"memory grew by {outcome.growth_mib} MiB, limit {GROWTH_MIB} MiB")
    return outcome


def _feed(parse: Parse, content: bytes, outcome: Outcome, corpus: Path) -> None:
    started = time.process_time()
    problem = ""
    signal.setitimer(signal.ITIMER_VIRTUAL, STOP_SECONDS)
    try:
        outcome.taken += parse(content)
    except (Exception, GivenUpError):
        problem = traceback.format_exc(limit=-4)
    seconds = time.process_time() - started
    outcome.inputs += 1
    outcome.slowest_seconds = max(outcome.slowest_seconds, seconds)
    if seconds > INPUT_SECONDS:
        problem = f"{seconds:.1f} s of processor time, limit {INPUT_SECONDS:g} s"
    if problem:
        outcome.findings.append(f"{_saved(corpus, content)}: {problem}")


@contextmanager
def _interrupting() -> Iterator[None]:
    """Inside, a timer of processor time raises GivenUpError on the main thread."""

    def give_up(number: int, frame: FrameType | None) -> NoReturn:
        raise GivenUpError

    former = signal.signal(signal.SIGVTALRM, give_up)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)


def _saved(corpus: Path, content: bytes) -> str:
    """Where the input is: in the corpus, or written outside the checkout, to be copied there."""
    for path in corpus.iterdir():
        if path.read_bytes() == content:
            return f"{corpus.name}/{path.name}"
    folder = Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / "kvscope-fuzz")
    file = folder / corpus.name / f"found-{hashlib.sha256(content).hexdigest()[:12]}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return str(file)


def _peak_mib_from_now() -> int:
    """Begin anew: what ran before in this process may have taken more, and hides what grows."""
    _PEAK.write_text(_FORGET_PEAK)
    return _peak_mib()


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // _KIB_IN_MIB
