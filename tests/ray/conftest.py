"""The Ray of these tests, and a cluster in a network of its own."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray.cluster import Cluster, cluster
from tests.ray.network import own_network
from tests.support.environments import python_of
from tests.support.process import ROOT

ENVIRONMENT = Path(os.environ.get("KVSCOPE_RAY_ENV") or ROOT / ".venv" / "ray")
"""Made by scripts/ray-env."""


@pytest.fixture(scope="session")
def ray_python() -> Path:
    """Ray's interpreter. Without one, all tests that need it are skipped; not in CI."""
    return python_of(ENVIRONMENT, "Ray")


@pytest.fixture(scope="module")
def ray(ray_python: Path) -> Iterator[Cluster]:
    """Its processes, and from now on this one, see only each other."""
    with (
        own_network(),
        tempfile.TemporaryDirectory(prefix="ray-") as folder,
        cluster(ray_python, Path(folder), {}) as running,
    ):
        yield running
