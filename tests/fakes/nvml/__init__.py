"""A simulated NVIDIA driver: our own libnvidia-ml, whose hardware a test rewrites as it runs."""

from tests.fakes.nvml.library import build_library, compiler
from tests.fakes.nvml.simulated import Simulated, State
from tests.fakes.nvml.states import (
    GIB,
    MIB,
    STATES,
    h200,
    l40s,
    machine,
    mig,
)

__all__ = [
    "GIB",
    "MIB",
    "STATES",
    "Simulated",
    "State",
    "build_library",
    "compiler",
    "h200",
    "l40s",
    "machine",
    "mig",
]
