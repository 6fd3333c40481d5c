"""Options of vLLM against preemptions, as docs/studies/advice.md has them, by its own scheduler."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vllm.driven import run_in_vllm

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly, pytest.mark.slow),
    pytest.mark.timeout(900),
]


def test_a_watermark_ends_most_recomputing_and_a_threshold_for_long_prompts_adds_to_it(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    lines, _ = run_in_vllm(vllm_python, tmp_path, "tests.vllm.levers", str(models("llama")))
    found = {line.pop("setting"): line for line in lines}
    recomputed = {name: line["recomputed_tokens"] for name, line in found.items()}
    steps = {name: line["steps"] for name, line in found.items()}
    now = recomputed["as it is"]
    assert now > 0
    assert recomputed["--watermark 0.15"] < now / 10
    assert recomputed["--watermark 0.15"] < recomputed["--watermark 0.05"] < now / 2
    assert steps["as it is"] < steps["--watermark 0.15"] < steps["--max-num-seqs 8"]
    assert recomputed["--long-prefill-token-threshold 64"] > now
