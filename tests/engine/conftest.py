"""Tiny models on one thread: a second one only waits for the first, or for another process."""

from collections.abc import Iterator

import pytest
import torch

from tests.support.running import Running

torch.set_num_threads(1)


@pytest.fixture
def running() -> Iterator[Running]:
    engine = Running()
    engine.loop.start()
    yield engine
    engine.runner.open.set()
    engine.loop.shutdown(0)
