"""The whole engine with the kernels: forked samples that are preempted, swapped and recomputed.

`test_triton.py` runs this file.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from kvscope_events.events import BlockCopied, BlocksShared, RequestPreempted
from tests.engine.test_same_samples import GREEDY, SEEDED, Case, assert_equal, reference_of, serve
from tests.support.checkpoints import make_checkpoint

LENGTHS = (5, 19, 32)
"""Lengths of the prompts: two end within a block, one with it."""
SAMPLINGS = [replace(GREEDY, max_tokens=14), replace(SEEDED, max_tokens=14)]
CASE = Case(num_blocks=7, budget=20, swap_blocks=2)
"""Each sample takes two or three blocks, and some of those preempted find no room on the host."""


@pytest.mark.parametrize(
    "architecture", [pytest.param("llama", marks=pytest.mark.weekly), "gemma2"]
)
def test_samples_equal_plain_transformers(architecture: str, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, architecture, num_hidden_layers=2)
    reference = reference_of(folder, LENGTHS, SAMPLINGS)
    for sampling in SAMPLINGS:
        calls, events = serve(reference, sampling, CASE, "triton")
        assert_equal(calls, reference.outputs[sampling])
        assert [e for e in events if isinstance(e, BlocksShared) and e.cause == "fork"]
        assert [e for e in events if isinstance(e, BlockCopied)]
        modes = {e.mode for e in events if isinstance(e, RequestPreempted)}
        assert modes == {"swap", "recompute"}
