"""Rounds of random calls on an engine with a quarter of the blocks that they want.

The whole engine is in this process. Every call that is left alone must get the tokens of an
undisturbed engine; afterwards no block, thread, file or memory may be left behind.
"""

import gc
import os
import random
import time
from collections import Counter
from dataclasses import replace

from kvscope_engine.config import PreemptionPolicy
from tools.chaos.engine.calls import MAX_MODEL_LEN, Call, random_calls
from tools.chaos.engine.engine import BLOCK_SIZE, MAX_NUM_SEQS, ChaosEngine, Outcome
from tools.chaos.frame import Figures, Say, figures_of

OUT_OF_MEMORY = 0.01
"""Share of steps."""
AT_ONCE = 48
MORE_RSS_MIB = 24
"""Total growth of the resident memory that is tolerated from the second round on."""
_UNDISTURBED_BLOCKS = 2048


def run(
    seconds: float,
    mode: PreemptionPolicy,
    say: Say,
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
        seen.append(figures_of(os.getpid()))
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
    return figures_of(os.getpid())


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
    found = figures_of(os.getpid()).more(before, threads=0, descriptors=0)
    if len(seen) > 2:
        found += seen[-1].more(seen[1], "since the second round", rss_mib=MORE_RSS_MIB)
    return found


_REASONS = {"lives": {"length"}, "raises": {"length", "error"}, "leaves": {"length", "abort"}}


def differences(calls: list[Call], outcomes: list[Outcome], right: list[Outcome]) -> list[str]:
    """One line for each call that did not get what an undisturbed engine gives."""
    return [
        f"call {number} ({call.fate}, n={call.n}): {problem}"
        for number, (call, got, wanted) in enumerate(zip(calls, outcomes, right, strict=True))
        if (problem := _problem(call, got, wanted))
    ]


def _problem(call: Call, got: Outcome, wanted: Outcome) -> str:
    if len(got.reasons) != call.n or not set(got.reasons) <= _REASONS[call.fate]:
        return f"ended with {got.reasons}"
    if call.fate == "raises" and call.at < call.max_tokens and "error" not in got.reasons:
        return "raised, and has no error"
    for choice, (tokens, all_tokens) in enumerate(zip(got.tokens, wanted.tokens, strict=True)):
        if tokens != all_tokens[: len(tokens)]:
            return f"choice {choice} has other tokens"
        if got.reasons[choice] == "length" and tokens != all_tokens:
            return f"choice {choice} is cut short"
    return ""
