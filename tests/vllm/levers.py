"""Serves one closed loop by a vLLM's real scheduler with one option changed at a time, no model.

    python -m tests.vllm.levers MODEL

in the Python of a vLLM, with this checkout on PYTHONPATH. Prints a line for each setting: its
preemptions, the tokens computed over those that had to be, and the steps.
"""

import json
import sys
from functools import partial
from random import Random
from typing import Any

from tests.vllm.child import in_child
from tests.vllm.scheduler import Driver

BLOCKS = 160
CLIENTS = 24
REQUESTS = 400
PROMPT_TOKENS = (40, 300)
OUTPUT_TOKENS = (60, 180)
SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "--watermark 0.05": {"watermark": 0.05},
    "--watermark 0.15": {"watermark": 0.15},
    "--no-scheduler-reserve-full-isl": {"scheduler_reserve_full_isl": False},
    "--max-num-seqs 8": {"max_num_seqs": 8},
    "--max-num-batched-tokens 128": {"max_num_batched_tokens": 128},
    "--long-prefill-token-threshold 64": {"long_prefill_token_threshold": 64},
}


def run(model: str, setting: dict[str, Any]) -> dict[str, float]:
    """All requests, as many at once as there are clients."""
    options = {"max_num_batched_tokens": 512, "max_num_seqs": CLIENTS} | setting
    driver = Driver("sync-nocache", model, BLOCKS, 0, **options)
    scheduler, random = driver.scheduler, Random(1)
    preemptions = computed = steps = needed = longest = 0
    while driver.requests < REQUESTS or scheduler.has_requests():
        while driver.requests < REQUESTS and len(scheduler.requests) < CLIENTS:
            prompt, output = random.randint(*PROMPT_TOKENS), random.randint(*OUTPUT_TOKENS)
            driver.add(driver.tokens(prompt), output)
            needed += prompt + output - 1  # the last token is never computed
        before = {request.request_id: request.num_preemptions for request in scheduler.running}
        live = dict(scheduler.requests)
        batch = scheduler.schedule()
        preemptions += sum(live[name].num_preemptions - count for name, count in before.items())
        computed += batch.total_num_scheduled_tokens
        longest = max(longest, batch.total_num_scheduled_tokens)
        steps += 1
        driver.queue.append((batch, driver.samples(batch)))
        driver.finish_step()
    return {
        "preemptions": preemptions,
        "recomputed_tokens": computed - needed,
        "recomputed_ratio": round((computed - needed) / needed, 4),
        "steps": steps,
        "largest_step_tokens": longest,
    }


def main() -> None:
    for name, setting in SETTINGS.items():
        print(json.dumps({"setting": name, **in_child(partial(run, sys.argv[1], setting))}))


if __name__ == "__main__":
    main()
