"""One server for the tests that leave it as it was; those that break something start their own."""

from collections.abc import Iterator

import pytest

from tests.support.server import Server, serving


@pytest.fixture(scope="package")
def shared() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    """The shared server; checks that the test left nothing running and nothing altered."""
    yield shared
    shared.reins.says = shared.reins.ends_after = None
    shared.wait_until_free()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that the test may break."""
    with serving() as running:
        yield running
