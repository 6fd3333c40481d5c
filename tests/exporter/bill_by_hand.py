"""The scenarios of docs/studies/preemption.md, played on the real engine: one step each second."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvscope_engine.out_of_memory import DeviceOutOfMemoryError
from kvscope_engine.request import Sequence, SequenceState
from kvscope_engine.step import Step
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.events import RequestPreempted, StepCompleted
from kvscope_events.producers import ENGINE_EVENTS, SWAP_EVENTS
from kvscope_exporter.targets.exporter import Exporter, in_process
from tests.exporter.machine import MACHINE
from tests.exporter.page import hello
from tests.support.accounting import Accounting, ContentRunner

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "studies" / "preemption.md"
SECOND_NS = 1_000_000_000
PREFIX = list(range(100, 108))
"""Two blocks that several prompts begin with."""


def table(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the document, without its head."""
    below = DOCUMENT.read_text().split(f"\n### {heading}\n", 1)[1].split("\n##", 1)[0]
    rows = [line for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


@dataclass(frozen=True)
class Arrival:
    """A line of the table of requests."""

    name: str
    step: int
    prompt: list[int]
    max_tokens: int
    aborted: int | None


def arrivals(heading: str) -> list[Arrival]:
    found = []
    for number, (name, step, prompt, max_tokens, aborted) in enumerate(table(heading)):
        own = int(prompt.removeprefix("prefix + "))
        tokens = [1_000 * number + place for place in range(own)]
        if prompt.startswith("prefix"):
            tokens = PREFIX + tokens
        left = int(aborted) if aborted.isdecimal() else None
        found.append(Arrival(name, int(step), tokens, int(max_tokens), left))
    return found


class FailingRunner(ContentRunner):
    """Runs out of device memory in one step, and counts what it computes."""

    def __init__(self, block_size: int, fails: Callable[[], bool]) -> None:
        super().__init__(block_size)
        self._fails = fails
        self.computed: Counter[int] = Counter()
        """Tokens by sequence."""

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        if self._fails():
            raise DeviceOutOfMemoryError(None)
        self.computed.update({row.sequence.sequence_id: row.count for row in plan.rows})
        return super().execute(plan)


class Scenario:
    """Steps by hand; the clock stands at the number of the step, in seconds."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        blocks: int,
        fails_at: int | None = None,
        requests: str = "Six requests",
        swap_blocks: int = 0,
    ) -> None:
        """requests: heading of their table."""
        self.step_number = 0
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.step_number * SECOND_NS)
        self.runner = FailingRunner(4, lambda: self.step_number == fails_at)
        self.engine = engine = Accounting(
            num_blocks=blocks, max_num_seqs=6, swap_blocks=swap_blocks, runner=self.runner
        )
        self.exporter: Exporter = in_process(engine.bus.subscribe(), machine=MACHINE)
        tells = ENGINE_EVENTS | SWAP_EVENTS if swap_blocks else ENGINE_EVENTS
        engine.bus.emit(hello(tells=sorted(tells)))
        self._steps = Step(engine.scheduler, engine.pool, self.runner, engine.bus)
        self._arrivals = arrivals(requests)
        self.sequences: dict[str, Sequence] = {}
        self.preempted_in: list[tuple[int, RequestPreempted]] = []
        """Preemptions and their steps."""

    def step(self) -> int:
        """The next step; returns the tokens that it computed."""
        self.step_number += 1
        for arrival in self._arrivals:
            if arrival.step == self.step_number:
                sequence = self.engine.add(arrival.prompt, arrival.max_tokens)
                self.sequences[arrival.name] = sequence
            if arrival.aborted == self.step_number:
                self.engine.scheduler.finish(self.sequences[arrival.name], "abort")
        seen = len(self.engine.events)
        self._steps.run()
        self.engine.flush()
        self.engine.check()
        events = self.engine.events[seen:]
        self.preempted_in += [
            (self.step_number, e) for e in events if isinstance(e, RequestPreempted)
        ]
        completed = [e for e in events if isinstance(e, StepCompleted)]
        return sum(e.prefill_tokens + e.decode_tokens for e in completed)

    def name_of(self, sequence: int | None) -> str:
        return next(n for n, s in self.sequences.items() if s.sequence_id == sequence)

    def state(self, name: str) -> str:
        """Blocks in the order of the tokens, and how many tokens are computed; or of the host."""
        sequence = self.sequences.get(name)
        if sequence is None or sequence.state is SequenceState.FINISHED:
            return ""
        if sequence.host_blocks:
            return f"host {' '.join(map(str, sequence.host_blocks))} ({sequence.discarded_tokens})"
        if sequence.state is SequenceState.WAITING:
            return "waits"
        blocks = " ".join(map(str, sequence.block_table))
        return f"{blocks} ({sequence.num_computed_tokens})"

    def pool(self) -> tuple[str, str]:
        """Free blocks by number, and cached ones, the next to be evicted first."""
        state = self.engine.pool.snapshot()
        cached = " ".join(map(str, state.lru))
        free = (b for b, held in enumerate(state.ref_counts) if not held and b not in state.lru)
        return " ".join(map(str, free)), cached
