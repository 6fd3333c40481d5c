"""Publishers on real sockets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kv_events.publisher import Publish, Publisher


@pytest.fixture
def publish(tmp_path: Path) -> Iterator[Publish]:
    """Start a publisher where `watched` looks for one."""
    made: list[Publisher] = []

    def start(*, replay: bool = True, **options: Any) -> Publisher:
        endpoints = [f"ipc://{tmp_path}/events", f"ipc://{tmp_path}/replay" if replay else None]
        made.append(Publisher(*endpoints, **options))  # type: ignore[arg-type]
        return made[-1]

    yield start
    for publisher in made:
        publisher.close()
