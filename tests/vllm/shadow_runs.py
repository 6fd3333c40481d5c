"""Serves one list of requests by a vLLM's real scheduler, with pools of several sizes.

    python -m tests.vllm.shadow_runs MODEL FOLDER

in the Python of a vLLM, with this checkout on PYTHONPATH and KVSCOPE_OBSERVER_DIR set; there is no
model to run. Reads cases (`Case`, as JSON) from stdin, one a line. For each it keeps the events of
the first size in NAME.events, and prints what vLLM found for each request at each size, in tokens.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.vllm.child import in_child
from tests.vllm.kept import keep
from tests.vllm.scheduler import VOCABULARY, Driver

FACTORS = (1.0, 0.5, 0.75, 1.5, 2.0, 4.0)
MAX_STEPS = 100_000
BUDGET = 4096


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pool, and what is sent to it: conversations below shared system prompts."""

    name: str
    mode: str
    """See `tests.vllm.scheduler.Driver`."""
    blocks: int
    retention: int | None = 0
    requests: int = 80
    running: int = 1
    """Most requests at a time: the next is sent when one has ended, or once in `every` steps."""
    every: int = 0
    budget: int = BUDGET
    """Tokens of the largest step."""
    conversations: int = 16
    systems: int = 3
    system_tokens: int = 90
    user_tokens: int = 50
    output_tokens: int = 24
    turns: int = 4
    seed: int = 0
    quarter: bool = False
    """Whether a quarter of the pool still holds the longest request, and is tried too."""
    retaining: bool = False
    """Whether the other pool is not of another size, but keeps every window and state."""

    @property
    def factors(self) -> tuple[float, ...]:
        """Sizes, the recorded one first."""
        if self.retaining:
            return FACTORS[:1]
        if self.quarter:
            return (*FACTORS, 0.25)
        return FACTORS if self.budget == BUDGET else FACTORS[:1] + FACTORS[-2:]

    @property
    def longest(self) -> int:
        each = self.user_tokens + self.output_tokens
        return self.system_tokens + (self.turns + 1) * each


@dataclass
class Asked:
    prompt: list[int]
    answer: list[int]


def requests_of(case: Case) -> list[Asked]:
    """The whole list, with the answers that are given: nothing depends on what is served."""
    random = Random(case.seed)

    def tokens(count: int) -> list[int]:
        return [random.randrange(VOCABULARY) for _ in range(count)]

    systems = [tokens(case.system_tokens) for _ in range(case.systems)]
    open_: list[tuple[list[int], int]] = []
    asked = []
    for _ in range(case.requests):
        while len(open_) < case.conversations:
            open_.append((list(random.choice(systems)), random.randrange(1, case.turns + 1)))
        # Mostly one that was lately gone on with.
        told, left = open_.pop(int(case.conversations * random.random() ** 0.6))
        prompt = told + tokens(random.randrange(case.user_tokens // 4, case.user_tokens))
        answer = tokens(random.randrange(1, case.output_tokens))
        asked.append(Asked(prompt, answer))
        if left > 1:
            open_.append((prompt + answer, left - 1))
    return asked


class Oracle(Driver):
    """Tokens are those of the list, whatever the order in which they are computed."""

    def __init__(self, model: str, case: Case, blocks: int, asked: list[Asked]) -> None:
        self.asked = asked
        self.found: list[tuple[int, int, bool]] = []
        """Request, tokens found, and whether it had been preempted; in the order of admission."""
        super().__init__(
            *(case.mode, model, blocks, case.seed),
            max_seqs=64,
            retention=case.retention,
            max_model_len=case.longest,
            max_num_batched_tokens=case.budget,
        )
        manager = self.scheduler.kv_cache_manager
        record = manager.record_prefix_cache_stats

        def noted(request: Any, num_hits: int) -> None:
            self.found.append((int(request.request_id[1:]), num_hits, request.num_preemptions > 0))
            record(request, num_hits)

        manager.record_prefix_cache_stats = noted

    def _sampled(self, output: Any, request_id: str) -> list[int]:
        request = self.scheduler.requests[request_id]
        answer = self.asked[int(request_id[1:])].answer
        place = request.num_output_tokens
        return [answer[min(place, len(answer) - 1)]]

    def serve(self, case: Case) -> None:
        """All requests; ends when the last one has."""
        scheduler, sent, steps = self.scheduler, 0, 0
        while sent < len(self.asked) or scheduler.has_unfinished_requests():
            due = steps % case.every == 0 if case.every else True
            while due and sent < len(self.asked) and len(scheduler.requests) < case.running:
                self.add(self.asked[sent].prompt, len(self.asked[sent].answer))
                sent += 1
                due = not case.every
            output = scheduler.schedule()
            self.queue.append((output, self.samples(output)))
            if len(self.queue) >= self.depth or not scheduler.running:
                self.finish_step()
            steps += 1
            assert steps < MAX_STEPS, "a request does not fit into the pool"
        while self.queue:
            self.finish_step()


def run(model: str, case: Case, folder: Path, factor: float) -> list[tuple[int, int, bool]]:
    """One size; the first one is recorded. 0: that size, and every window and state is kept."""
    from kvscope_events.observers.vllm.plugin import install, site

    usable = int((case.blocks - 1) * (factor or 1))
    asked = requests_of(case)
    if factor != 1:
        served = case if factor else replace(case, retention=None)
        oracle = Oracle(model, served, usable + 1, asked)
        oracle.serve(served)
        return oracle.found
    install()
    oracle = Oracle(model, case, usable + 1, asked)
    observer = site.observer
    assert observer is not None, "it is not observed"
    events = observer.outlet.bus.subscribe(1 << 20)
    events.request_snapshot()
    observer.flush()
    oracle.serve(case)
    observer.flush()
    keep(events, folder / f"{case.name}.events")
    assert site.observer is not None, "it has switched itself off"
    return oracle.found


def answers(model: str, folder: Path, case: Case) -> Iterable[dict[str, Any]]:
    for factor in (*case.factors, *((0.0,) if case.retaining else ())):
        work = partial(run, model, case, folder, factor)
        yield {"name": case.name, "factor": factor, "found": in_child(work)}


def main() -> None:
    model, folder = sys.argv[1:]
    for line in sys.stdin:
        for answer in answers(model, Path(folder), Case(**json.loads(line))):
            print(json.dumps(answer), flush=True)


__all__ = ["FACTORS", "Case"]

if __name__ == "__main__":
    main()
