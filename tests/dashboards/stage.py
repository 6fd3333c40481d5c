"""`python -m tests.dashboards.stage FOLDER`: `kvscope demo` on a GPU that is not there.

The engine is real, as is its exporter; NVML is the simulated one, and what torch would say of a
CUDA device is made up. A file `oom` in FOLDER makes the next step run out of memory, and
torch have one more retry; the simulated hardware's state is FOLDER/nvml.state.
"""

import os
import sys
from pathlib import Path

from kvscope.cli.app import app
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.out_of_memory import DeviceOutOfMemoryError
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.events import DeviceMemorySampled
from tests.fakes.nvml import GIB, MIB, Simulated, h200, machine
from tests.gpu.scrapes import torch_sample

SERVER_BYTES, OTHER_BYTES, NOBODYS_BYTES = 29 * GIB, 2 * GIB, 18 * MIB


def pretend(folder: Path) -> None:
    """From now on there is an H200, and the engine's model is on it."""
    used = SERVER_BYTES + OTHER_BYTES + NOBODYS_BYTES
    processes = f"{os.getpid()}:{SERVER_BYTES},77:{OTHER_BYTES}"
    Simulated(folder / "nvml.state").become(machine(h200(processes, used)))
    execute = ModelRunner.execute
    failures = 0

    def may_fail(runner: ModelRunner, plan: StepPlan) -> list[SampledToken | None]:
        nonlocal failures
        fault = folder / "oom"
        if fault.exists():
            fault.unlink()
            failures += 1
            raise DeviceOutOfMemoryError(2 * GIB)
        return execute(runner, plan)

    def sample(runner: ModelRunner) -> DeviceMemorySampled:
        return torch_sample(pid=os.getpid(), alloc_retries=failures, ooms=failures)

    ModelRunner.execute = may_fail  # type: ignore[method-assign]
    ModelRunner.sample_memory = sample  # type: ignore[method-assign]


if __name__ == "__main__":
    pretend(Path(sys.argv[1]))
    app(["demo", "--port", "0"])
