"""A step of a real vLLM's scheduler says why it admitted no more, as the line says at which
`schedule` left its loop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.driven import run_in_vllm

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]


def test_each_step_says_where_the_scheduler_left_its_loop(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    lines, _ = run_in_vllm(vllm_python, tmp_path, "tests.vllm.admission", str(models("llama")))
    scenes: dict[str, dict[str, Any]] = {line.pop("scene"): line for line in lines}
    assert {name: scene["wrong"] for name, scene in scenes.items() if scene["wrong"]} == {}
    assert [name for name, scene in scenes.items() if not scene["chunks_agree"]] == []
    stops = {name: scene["stops"] for name, scene in scenes.items()}
    assert stops["slots"] == ["sequences"] * 4 + ["empty"] * 2
    assert stops["tokens"] == ["tokens"] * 2 + ["empty"] * 2
    assert stops["whole"] == ["tokens", "empty"]
    assert stops["blocks"] == ["blocks"] * 4 + ["empty"] * 2
    assert stops["paused"] == ["empty", "paused", "paused", "empty"]
    assert stops["stuck"] == ["unexplained"] * 2
    assert {"empty", "blocks"} == set(stops["preempted"])
    assert {"empty", "sequences", "blocks", "tokens"} == set(stops["async"])
    deferred = {name: scene["deferred"] for name, scene in scenes.items()}
    assert deferred["grammar"] == [[[2, "grammar"]]] * 2 + [[]] * 2
    assert sorted(deferred["adapters"][0]) == [[2, "adapter"], [3, "adapter"]]
    assert sorted(deferred["transfer"][0]) == [[2, "transfer"], [3, "transfer"]]
