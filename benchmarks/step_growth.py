"""Cost of scheduling, accounting and events in a step, from 1 to 512 running sequences; no model.

    python -m benchmarks.step_growth

Every sequence decodes one token a step; the figure is the median step without the runner, which
here answers with a constant.
"""

from statistics import median
from time import perf_counter

from benchmarks.report import report
from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import SchedulerConfig
from kvscope_engine.hashing import PrefixHasher, chain_seed
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.request import Request, SamplingParams, Sequence
from kvscope_engine.scheduler import Scheduler
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
                *(0, scheduler.num_running, scheduler.num_waiting, 0),
                *(plan.prefill_tokens, plan.decode_tokens),
                pool.num_active * BLOCK_SIZE - scheduler.num_unfilled_slots,
                *(pool.num_active, pool.num_cached, pool.num_free),
                [row.sequence.sequence_id for row in plan.rows],
                [],
                *(scheduler.requests.num_running, scheduler.requests.num_waiting),
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
        row = {"us_per_step": microseconds, "us_per_sequence": microseconds / count}
        rows[f"{count} sequences"] = row
    report("step_growth", rows)


if __name__ == "__main__":
    main()
