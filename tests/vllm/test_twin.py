"""A real vLLM, recorded, on its own scheduler: it decides each step as it did.

Without weights and without a GPU, in a process of vLLM's Python.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.process import completed
from tests.vllm.observed import leave_early, load, observed

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.slow),
    pytest.mark.timeout(600),
]

ROOMY = ("--num-gpu-blocks-override", "60", "--max-model-len", "1024", "--max-num-seqs", "12")
LEAST_ALIKE = 0.99


def test_a_recorded_vllm_is_decided_alike_and_answers_for_other_options(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    """Chats, calls that outgrow the pool, and clients that leave while they wait or are served."""
    file = tmp_path / "twin.kvsr"
    with observed(
        vllm_python, models("llama"), tmp_path, *ROOMY, "--max-num-batched-tokens", "256"
    ) as vllm:
        for number in range(3):
            leave_early(vllm, number)
        load(vllm.server)
        vllm.settle()
        recorded = completed("rec", "save", vllm.replay.endpoint, str(file), "--duration", "2s")
        assert recorded.returncode == 0, recorded.stderr
    settings = ("max_num_seqs=3", "long_prefill_token_threshold=64", "watermark=0.2")
    asked = completed(
        *("whatif", str(file), "--python", str(vllm_python), "-o", "json"),
        *(word for setting in settings for word in ("--set", setting)),
        seconds=400,
    )
    assert asked.returncode == 0, asked.stderr
    found = json.loads(asked.stdout)
    assert found["scheduler"] == found["server"]
    assert found["steps"] > 500
    assert found["steps_alike"] >= LEAST_ALIKE * found["steps"], found["first_difference"]
    assert found["measured"]["preemptions"] > 0, "the pool was too large for this test"
    few = found["settings"][0]
    assert few["predicted"]["preemptions"]["high"] < found["measured"]["preemptions"]
    assert len(found["settings"]) == len(settings)
    refused = completed(
        *("whatif", str(file), "--python", str(vllm_python)),
        *("--set", "max_num_partial_prefills=2"),
        seconds=400,
    )
    assert refused.returncode == 2
    assert " has no option max_num_partial_prefills" in refused.stderr
