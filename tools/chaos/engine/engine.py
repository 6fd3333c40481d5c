"""The whole engine over the demo model on a CPU, in this process; its events are folded."""

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import msgspec

from kvscope_engine.build import build_engine
from kvscope_engine.config import (
    CacheConfig,
    EngineConfig,
    ModelConfig,
    PreemptionPolicy,
    SwapConfig,
)
from kvscope_engine.request import Request
from kvscope_engine.server.requests import RequestFactory
from kvscope_engine.step import StepOutput
from kvscope_engine.step_plan import ScheduledSequence
from kvscope_events.bus import EventBus
from kvscope_events.events import RequestPreempted, StepCompleted
from kvscope_exporter.state import Ledger
from tests.support.faults import FaultyRunner
from tests.support.waiting import wait_for
from tools.chaos.engine.calls import MAX_MODEL_LEN, Call

BLOCK_SIZE = 16
MAX_NUM_SEQS = 32
PATIENCE_SECONDS = 300.0
SWAP_SPACE_GIB = 40 * 2**15 / 2**30
"""40 blocks of the demo model: too few, so that some of what is preempted has no room there."""


@dataclass(slots=True)
class Outcome:
    """The outcome of one call."""

    tokens: list[list[int]]
    """Tokens of each choice."""
    reasons: list[str]
    """Finish reason of each ended choice."""


class ChaosEngine:
    """A started engine."""

    def __init__(
        self,
        num_blocks: int,
        *,
        out_of_memory: float = 0.0,
        mode: PreemptionPolicy = "recompute",
    ) -> None:
        """out_of_memory: share of steps that have none."""
        space = None if mode == "recompute" else SWAP_SPACE_GIB
        config = EngineConfig(
            model=ModelConfig(device="cpu"),
            cache=CacheConfig(num_gpu_blocks_override=num_blocks, block_size=BLOCK_SIZE),
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=256,
            policy="priority",
            max_num_queued_reqs=10_000,
            swap=SwapConfig(mode=mode, space_gib=space),
        )
        self._bus = EventBus()
        self._events = self._bus.subscribe(queue_batches=1 << 16)
        self._engine = build_engine(config, self._bus)
        self._loop: Any = self._engine.loop
        self.runner = FaultyRunner(
            self._loop._step.runner, self._raises, out_of_memory=out_of_memory
        )
        self._loop._step.runner = self.runner
        self._loop._sink = self._sink
        self._factory = RequestFactory(self._engine.served, self._engine.scheduler)
        self._ledger = Ledger()
        self.preemptions: Counter[str] = Counter()
        """By mode."""
        self._lock = threading.Lock()
        self._calls: dict[int, Call] = {}
        self._outputs: dict[int, list[StepOutput]] = defaultdict(list)
        self._call_of: dict[int, int] = {}
        self._loop.start()

    def run(self, calls: list[Call], at_once: int) -> list[Outcome]:
        """All calls, at most this many at once; with them gone, the accounts must be even."""
        under_way: list[Request] = []
        for call in calls:
            wait_for(lambda: self._loop.num_in_flight < at_once, "a call ends", PATIENCE_SECONDS)
            self._fold()
            under_way.append(self._submit(call))
        wait_for(lambda: all(map(self._has_ended, under_way)), "all calls end", PATIENCE_SECONDS)
        outcomes = [self._outcome(request) for request in under_way]
        self.check_idle()
        return outcomes

    def check_idle(self) -> None:
        """No block has an owner, and the ledger folded from events is the pool."""
        pool = self._loop._pool
        self._fold()
        assert self._loop.num_in_flight == 0
        health = self._loop.health()
        assert health.ok, health.reason
        assert pool.num_active == 0, f"{pool.num_active} blocks are left active"
        pool.check()
        self._ledger.check()
        state, swap = pool.snapshot(), self._loop._step.scheduler.swap
        if swap is not None:
            swap.host.check()
            assert swap.host.num_used == 0, "blocks of the swap pool are left used"
            assert not swap.sequences
            state = msgspec.structs.replace(state, swap_blocks=swap.host.num_blocks)
        assert self._ledger.state() == state

    def shutdown(self) -> None:
        assert self._loop.shutdown(0.0), "the engine's thread has not ended"

    def _submit(self, call: Call) -> Request:
        request = call.request(self._factory)
        with self._lock:
            self._calls[request.request_id] = call
            for sequence in request.sequences:
                self._call_of[sequence.sequence_id] = request.request_id
        self._loop.submit(request)
        return request

    def _raises(self, row: ScheduledSequence) -> bool:
        call = self._calls[row.sequence.request_id]
        return call.fate == "raises" and row.sequence.num_output_tokens >= call.at

    def _sink(self, outputs: list[StepOutput]) -> None:
        """Called on the engine's thread."""
        with self._lock:
            for output in outputs:
                said = self._outputs[output.sequence_id]
                said.append(output)
                request_id = self._call_of[output.sequence_id]
                call = self._calls[request_id]
                if call.fate == "leaves" and len(said) == call.at:
                    self._loop.abort(request_id)

    def _has_ended(self, request: Request) -> bool:
        with self._lock:
            said = [self._outputs[s.sequence_id] for s in request.sequences]
        return all(choice and choice[-1].finish_reason for choice in said)

    def _outcome(self, request: Request) -> Outcome:
        """Forgets the call."""
        with self._lock:
            del self._calls[request.request_id]
            said = [self._outputs.pop(s.sequence_id) for s in request.sequences]
            for sequence in request.sequences:
                del self._call_of[sequence.sequence_id]
        tokens = [[o.token.token_id for o in choice if o.token is not None] for choice in said]
        reasons = [str(o.finish_reason) for choice in said for o in choice if o.finish_reason]
        return Outcome(tokens, reasons)

    def _fold(self) -> None:
        """Add up the results, step by step."""
        while (taken := self._events.take()) is not None:
            batch, lost = taken
            assert not lost, f"{lost} batches are lost"
            self._ledger.on_batch(batch)
            if any(isinstance(event, StepCompleted) for event in batch.events):
                assert self._ledger.imbalance == 0, "the ledger and the engine's count differ"
            self.preemptions.update(
                event.mode for event in batch.events if isinstance(event, RequestPreempted)
            )
