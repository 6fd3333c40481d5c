"""`kvscope` with faults: the beginning of a prompt determines the fate of its step.

python -m tests.support.faulty_cli serve --port 8000
"""

import time

import kvscope_engine.build
from kvscope.cli import main
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.step_plan import SampledToken, StepPlan

RAISES = "raise:"
BREAKS = "break:"
"""From then on every step raises, and the self-test."""
HANGS = "hang:"


class DeviceLostError(Exception):
    """Raised by every step once a prompt has broken the device."""


class FaultyModelRunner(ModelRunner):
    """The real one, but for those prompts."""

    _is_broken = False

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        for row in plan.rows:
            prompt = bytes(token % 256 for token in row.sequence.prompt)
            if prompt.startswith(RAISES.encode()):
                raise LookupError("this prompt raises")
            if prompt.startswith(HANGS.encode()):
                time.sleep(3600.0)
            self._is_broken = self._is_broken or prompt.startswith(BREAKS.encode())
        self.self_test()
        return super().execute(plan)

    def self_test(self) -> None:
        if self._is_broken:
            raise DeviceLostError("device lost")


if __name__ == "__main__":
    kvscope_engine.build.ModelRunner = FaultyModelRunner  # type: ignore[misc]
    main()
