"""The worker's side of the observer of vLLM, in a process without vLLM."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope_events.observers.vllm import worker as observed
from tests.observers.workers import Wrapper, hooked_wrapper


@pytest.fixture
def wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Wrapper]]:
    """A class with hooks installed, in a folder of its own."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("KVSCOPE_OBSERVER_DIR", str(tmp_path))
    yield hooked_wrapper(Wrapper.init_device)
    for observer in observed._observers.values():
        observer.stop()
    observed._observers.clear()
