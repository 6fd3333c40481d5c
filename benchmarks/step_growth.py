"""Cost of scheduling, accounting and events in a step, from 1 to 512 running sequences; no model.

    python -m benchmarks.step_growth

Every sequence decodes one token a step; the figure is the median step without the runner, which
here answers with a constant.
"""

import json
import sys
from statistics import median
from time import perf_counter

from benchmarks.report import environment
from engine.block_pool import BlockPool
from engine.config import SchedulerConfig
from engine.hashing import PrefixHasher, chain_seed
from engine.kv_manager import KVManager
from engine.request import Request, SamplingParams, Sequence
from engine.scheduler import Scheduler
from kvscope_events.bus import EventBus
from kvscope_events.events import StepCompleted

SEQUENCES = (1, 8, 32, 128, 512)
BLOCK_SIZE = 16
PROMPT_TOKENS = 100
STEPS = 400


def step_seconds(count: int) -> list[float]:
    bus = EventBus()
    bus.subscribe(queue_batches=4)
    pool = BlockPool(count * 64, BLOCK_SIZE, bus)
    config = SchedulerConfig(
        max_model_len=1024, max_num_seqs=count, max_num_batched_tokens=PROMPT_TOKENS * count
    )
    scheduler = Scheduler(config, KVManager(pool, bus), bus, frozenset())
    for number in range(count):
        sequence = Sequence(
            sequence_id=number,
            request_id=number,
            tokens=[number % 250] * PROMPT_TOKENS,
            prompt_length=PROMPT_TOKENS,
            sampling=SamplingParams(max_tokens=STEPS + 10),
            hasher=PrefixHasher(chain_seed("m"), BLOCK_SIZE),
        )
        scheduler.add(Request(request_id=number, sequences=[sequence], arrival_ns=0))
    times = []
    for _ in range(STEPS):
        start = perf_counter()
        plan = scheduler.schedule()
        scheduler.update(plan, [1] * len(plan.rows))
        bus.emit(
            StepCompleted(
                duration_ns=0,
                running=scheduler.num_running,
                waiting=scheduler.num_waiting,
                swapped=0,
                prefill_tokens=plan.prefill_tokens,
                decode_tokens=plan.decode_tokens,
                slots_filled=pool.num_active * BLOCK_SIZE - scheduler.num_unfilled_slots,
                active_blocks=pool.num_active,
                cached_blocks=pool.num_cached,
                free_blocks=pool.num_free,
                emitted=[row.sequence.sequence_id for row in plan.rows],
                first_tokens=[],
                requests_running=scheduler.requests.num_running,
                requests_waiting=scheduler.requests.num_waiting,
            )
        )
        bus.flush()
        times.append(perf_counter() - start)
    assert scheduler.num_running == count
    return times[1:]  # without the prefill


def main() -> None:
    rows = {}
    for count in SEQUENCES:
        microseconds = median(step_seconds(count)) * 1e6
        rows[str(count)] = {"us_per_step": microseconds, "us_per_sequence": microseconds / count}
        print(
            f"{count:4d} sequences  {microseconds:9.1f} us a step  "
            f"{microseconds / count:6.2f} us a sequence",
            file=sys.stderr,
        )
    print(json.dumps({"environment": environment(), "steps": rows}))


if __name__ == "__main__":
    main()
