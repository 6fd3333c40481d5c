"""The port between the step and the model: anything that computes a plan is a `Runner`."""

from typing import Protocol

from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.events import DeviceMemorySampled


class Runner(Protocol):
    """Computes steps. One thread at a time."""

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        """Compute KV for every row; one result a row, None where the row does not sample.

        Raises DeviceOutOfMemoryError if the step is too large for the available memory.
        """
        ...

    def self_test(self) -> None:
        """Run a tiny step on dummy tokens, apart from the pool.

        Raises whatever every step would raise if the device or the model is broken, or
        DeviceOutOfMemoryError.
        """
        ...

    def drop_caches(self) -> None:
        """Release memory that is held but not used."""
        ...

    def sample_memory(self) -> DeviceMemorySampled:
        """The present use of the device's memory."""
        ...
