"""The curve of one run of vLLM's scheduler and pool against further runs with pools of its sizes.

Without a model, whose tokens do not matter here.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from kvscope.whatif.recording import curve_of_recording
from tests.replay.simulated import write_batches
from tests.support.prefix_trees import Load
from tests.vllm.driven import run_in_vllm
from tests.vllm.kept import kept
from tools.checks.whatif_check import VLLM_LIMIT, read

pytestmark = [pytest.mark.vllm, pytest.mark.nightly, pytest.mark.slow]

LOAD = Load(requests=500)
USABLE = 300
SIZES = (USABLE, USABLE // 2, 2 * USABLE)


@pytest.mark.parametrize("mode", ["sync", "eagle"])
def test_half_and_double_the_pool_of_a_vllm(
    mode: str,
    vllm_python: Path,
    models: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """With EAGLE, too, for whose drafter vLLM leaves out the last block that it finds."""
    folder = tmp_path_factory.mktemp("w")
    folder.chmod(0o700)  # of its sockets
    sizes = [str(size + 1) for size in SIZES]  # one block is never handed out
    counted, _ = run_in_vllm(
        *(vllm_python, folder, "tests.vllm.whatif_runs", mode, str(models("llama"))),
        str(folder),
        *(json.dumps(asdict(LOAD)), *sizes),
    )
    files = [folder / f"{size}.kvsr" for size in sizes]
    for file in files:
        write_batches(file, kept(file.with_suffix(".events")))
    found = curve_of_recording(files[0], SIZES)
    predicted = {point.capacity_blocks: point.hit_ratio for point in found.points}
    real = {size: read(file) for size, file in zip(SIZES, files, strict=True)}
    assert found.pool is not None
    assert (found.pool.usable_blocks, found.pool.hit_blocks) == (USABLE, real[USABLE].hit_blocks)
    assert [16 * run.hit_blocks for run in real.values()] == [one["hits"] for one in counted]
    ratios = [real[size].hit_ratio for size in sorted(SIZES)]
    assert ratios[0] + 0.05 < ratios[1] < ratios[2] - 0.05
    for size, run in real.items():
        assert run.preemptions == 0, "too small for the requests that run: not modelled"
        assert predicted[size] == pytest.approx(run.hit_ratio, abs=VLLM_LIMIT), (size, run)
    if mode == "sync":
        assert predicted[USABLE] == real[USABLE].hit_ratio
