"""A protocol peer for each test that asks for one."""

from collections.abc import Iterator

import pytest

from tests.load.peer import Peer, serving


@pytest.fixture
def peer() -> Iterator[Peer]:
    with serving(Peer()) as running:
        yield running
