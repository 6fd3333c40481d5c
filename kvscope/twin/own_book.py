"""kvscope's own scheduler for recorded calls, where the server's is not at hand."""

from collections.abc import Callable, Collection
from typing import Any

from kvscope.twin.replay import Call, ReplayError, Row, answer
from kvscope.twin.traffic import Traffic
from kvscope.whatif.findings import WhatIfError
from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import SchedulerConfig
from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.request import Request, SamplingParams, Sequence, SequenceState
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.step_plan import StepPlan
from kvscope_events import __version__
from kvscope_events.bus import NullBus

_SEED = b"twin"


class OwnBook:
    """Our scheduler, manager and pool with these options: see `settings.recorded_options`."""

    def __init__(self, options: dict[str, Any], reserved: int) -> None:
        self._size: int = options["block_size"]
        self._pool = BlockPool(
            options["num_gpu_blocks_override"], self._size, NullBus(), reserved=reserved
        )
        manager = KVManager(
            self._pool, NullBus(), enable_prefix_caching=options["enable_prefix_caching"]
        )
        config = SchedulerConfig(
            max_model_len=options["max_model_len"],
            max_num_seqs=options["max_num_seqs"],
            max_num_batched_tokens=options["max_num_batched_tokens"],
        )
        self._scheduler = Scheduler(config, manager, NullBus(), frozenset())
        self._live: dict[int, tuple[Sequence, Request]] = {}
        self.preemptions = self.queried = self.hit = 0

    def add(self, call: Call, prompt: list[int], limit: int, now: float) -> None:
        sampling = SamplingParams(max_tokens=limit, ignore_eos=True)
        hasher = PrefixHasher(_SEED, self._size)
        sequence = Sequence(call.number, call.number, prompt, call.prompt, sampling, hasher)
        request = Request(request_id=call.number, sequences=[sequence], arrival_ns=int(now * 1e9))
        self._live[call.number] = sequence, request
        self._scheduler.add(request)

    def give_up(self, number: int) -> None:
        if number in self._live:
            self._scheduler.finish_request(self._live.pop(number)[1], "abort")

    def reset(self) -> None:
        self._pool.reset()

    def is_busy(self) -> bool:
        return bool(self._live)

    def counts(self) -> tuple[int, int]:
        return self._scheduler.num_running, self._scheduler.num_waiting

    def schedule(self) -> tuple[StepPlan, Row]:
        had = [(sequence, sequence.num_preemptions) for sequence in self._scheduler.running]
        new = {n for n, (one, _) in self._live.items() if one.first_scheduled_ns is None}
        waited = {n for n, (one, _) in self._live.items() if one.state is SequenceState.WAITING}
        plan = self._scheduler.schedule()
        self.preemptions += sum(one.num_preemptions - before for one, before in had)
        context = pairs = admitted = 0.0
        for row in plan.rows:
            number, end = row.sequence.sequence_id, row.start + row.count
            if number in plan.chunks:
                pairs += row.count * (end - row.count / 2)
            else:
                context += end
            admitted += number in waited
            if number in new:
                self.queried += row.sequence.prompt_length
                self.hit += row.start
        decodes, chunks = float(plan.decode_tokens), float(len(plan.chunks))
        prefill = float(plan.prefill_tokens)
        return plan, [decodes, context / 1e3, prefill, chunks, pairs / 1e6, admitted]

    def finish(
        self, plan: StepPlan, token: Callable[[int, int], int]
    ) -> tuple[list[tuple[int, int]], list[int]]:
        tokens: list[int | None] = []
        produced, ended = [], []
        for row in plan.rows:
            number, at = row.sequence.sequence_id, len(row.sequence.tokens)
            tokens.append(token(number, at) if row.samples else None)
            if row.samples:
                produced.append((number, 1))
        self._scheduler.update(plan, tokens)
        for number, _ in produced:
            if self._live[number][0].state is SequenceState.FINISHED:
                del self._live[number]
                ended.append(number)
        return produced, ended


class OwnScheduler:
    """The calls of a recording on our scheduler, in this process."""

    name = "kvscope"
    version = __version__
    options: Collection[str] = (
        *("max_num_seqs", "max_num_batched_tokens", "num_gpu_blocks_override"),
        *("enable_prefix_caching", "max_model_len", "block_size"),
    )

    def __init__(self, traffic: Traffic) -> None:
        assert traffic.pool is not None
        self._calls = list(traffic.calls.values())
        self._reserved = traffic.pool.reserved

    def ask(self, **question: Any) -> Any:
        """Raises WhatIfError."""
        book = OwnBook(question["options"], self._reserved)
        try:
            return answer(question, self._calls, book)
        except ReplayError as error:
            raise WhatIfError(str(error)) from None
