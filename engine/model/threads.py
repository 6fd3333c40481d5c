"""How many threads torch may use on a CPU."""

import os

import torch


def leave_a_core() -> None:
    """Keep one core from torch, for the step loop, the server and the folds.

    torch's threads wait for each other by spinning: with one too many, each step waits for the
    thread that holds that core. Where OMP_NUM_THREADS is set, the operator has decided.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))
