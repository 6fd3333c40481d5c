"""The simulated driver in this process: the real pynvml on our library."""

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pynvml
import pytest

from kvscope_exporter.machine.gpu import Cadence, GpuPoller, xids
from tests.fakes.nvml import Simulated, build_library, compiler, h200, machine
from tests.gpu.scrapes import FAST
from tests.support.waiting import wait_for


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library file, for child processes; skipped where nothing can compile it."""
    if compiler() is None and os.environ.get("CI") != "true":
        pytest.skip("no C compiler on PATH")
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def _loaded(nvml_library: Path) -> Iterator[ctypes.CDLL]:
    """pynvml keeps library and function pointers for the life of the process, so they are set once.

    Not under its soname: torch, where there is CUDA, has to find the real one.
    """
    library = ctypes.CDLL(str(nvml_library))
    pynvml.nvmlLib = library
    yield library
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture
def hardware(
    _loaded: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Simulated]:
    """A machine with one H200; a test changes it."""
    state = tmp_path / "nvml.state"
    monkeypatch.setenv("FAKE_NVML_STATE", str(state))
    monkeypatch.setattr(xids, "WAIT_MILLISECONDS", 20)  # what a shutdown waits for
    simulated = Simulated(state, _loaded)
    simulated.become(machine(h200()))
    before = simulated.references
    yield simulated
    assert simulated.references == before, "NVML was not shut down"


@pytest.fixture
def start(hardware: Simulated) -> Iterator[Callable[..., GpuPoller]]:
    """Pollers that poll, and are stopped at the end."""
    pollers: list[GpuPoller] = []

    def begin(
        cadence: Cadence = FAST,
        *,
        wait: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> GpuPoller:
        poller = GpuPoller(cadence, environment=environment)
        pollers.append(poller)
        poller.start()
        if wait:
            wait_for(lambda: poller.read().sample is not None)
        return poller

    yield begin
    for poller in pollers:
        poller.stop(timeout=10)
