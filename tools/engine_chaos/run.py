"""Rounds of random calls on an engine with a quarter of the blocks that they want."""

import gc
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from engine.config import PreemptionPolicy
from tools.chaos.figures import Figures
from tools.engine_chaos.calls import MAX_MODEL_LEN, Call, random_calls
from tools.engine_chaos.engine import BLOCK_SIZE, MAX_NUM_SEQS, ChaosEngine, figures
from tools.engine_chaos.verdict import differences

OUT_OF_MEMORY = 0.01
"""Share of steps."""
AT_ONCE = 48
MORE_RSS_MIB = 24
"""Total growth of the resident memory that is tolerated from the second round on."""
_UNDISTURBED_BLOCKS = 2048


def run(
    seconds: float,
    mode: PreemptionPolicy,
    say: Callable[[str], None],
    *,
    calls: int = 300,
    seed: int = 0,
) -> list[str]:
    """Errors, one per line.

    At least one round; each has other calls. A round's calls run first undisturbed, one at a time
    in a large pool.
    """
    before = _figures_after_an_engine()
    deadline = time.monotonic() + seconds
    demand = _blocks_wanted(random_calls(calls, seed))
    disturbed = ChaosEngine(max(demand // 4, _whole()), out_of_memory=OUT_OF_MEMORY, mode=mode)
    undisturbed = ChaosEngine(_UNDISTURBED_BLOCKS)
    problems: list[str] = []
    seen: list[Figures] = []
    while not seen or time.monotonic() < deadline:
        batch = random_calls(calls, seed + len(seen))
        right = undisturbed.run([replace(call, fate="lives") for call in batch], at_once=1)
        outcomes = disturbed.run(batch, at_once=AT_ONCE)
        problems += differences(batch, outcomes, right)
        gc.collect()
        seen.append(figures())
        ends = Counter(reason for outcome in outcomes for reason in outcome.reasons)
        say(
            f"round {len(seen)}: {len(batch)} calls, {dict(ends)}; so far preemptions: "
            f"{dict(disturbed.preemptions)}, {disturbed.runner.num_raised} steps raised, "
            f"{len(problems)} problems; {seen[-1]}"
        )
    if not disturbed.preemptions["recompute"] or not disturbed.runner.num_raised:
        problems.append("nothing was recomputed, or nothing raised: this proves nothing")
    if mode == "swap" and not disturbed.preemptions["swap"]:
        problems.append("nothing was swapped: this proves nothing")
    disturbed.shutdown()
    undisturbed.shutdown()
    del disturbed, undisturbed
    return problems + _left_behind(before, seen)


def _figures_after_an_engine() -> Figures:
    """Figures after a first engine, since torch and others keep some memory for good."""
    first = ChaosEngine(_UNDISTURBED_BLOCKS)
    first.run(random_calls(4, 0), at_once=1)
    first.shutdown()
    del first
    gc.collect()
    return figures()


def _whole() -> int:
    """Blocks of one sequence of full length, which every pool must hold, and a few."""
    return -(-MAX_MODEL_LEN // BLOCK_SIZE) + 3


def _blocks_wanted(calls: list[Call]) -> int:
    """By as many sequences at their ends as may run at once."""
    lengths = [call.tokens for call in calls for _ in range(call.n)]
    sample = random.Random(0).choices(lengths, k=MAX_NUM_SEQS)
    return sum(-(-length // BLOCK_SIZE) for length in sample)


def _left_behind(before: Figures, seen: list[Figures]) -> list[str]:
    """Threads and descriptors that are more than at the start, memory that grows round by round."""
    gc.collect()
    after, found = figures(), []
    if after.threads > before.threads:
        found.append(f"{after.threads} threads, {before.threads} at the start")
    if after.descriptors > before.descriptors:
        found.append(f"{after.descriptors} descriptors, {before.descriptors} at the start")
    if len(seen) > 2 and seen[-1].rss_mib > seen[1].rss_mib + MORE_RSS_MIB:
        found.append(f"{seen[-1].rss_mib} MiB resident, {seen[1].rss_mib} after the second round")
    return found
