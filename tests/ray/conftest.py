"""The Ray of these tests, a cluster in a network of its own, and our engine's application on it."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray.cluster import Cluster, cluster
from tests.ray.conversations import Answered, converse
from tests.ray.network import own_network
from tests.support.environments import python_of
from tests.support.process import ROOT

ENVIRONMENT = Path(os.environ.get("KVSCOPE_RAY_ENV") or ROOT / ".venv" / "ray")
"""Made by scripts/ray-env."""
SERVED = ROOT / "deploy" / "ray" / "serve.yaml"
SMALL = {
    "min_replicas": 2,
    "max_replicas": 2,
    "health_seconds": 2,
    "options": ["--no-gpu", "--num-gpu-blocks-override", "1024", "--max-model-len", "2048"],
}
"""Instead of the arguments in deploy/ray/serve.yaml."""


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


@pytest.fixture(scope="module")
def by_rays_router(ray: Cluster) -> Answered:
    """The conversations behind Ray's own router."""
    ray.deploy(SERVED, **SMALL, router="ray")
    answered = converse()
    ray.clear()
    return answered


@pytest.fixture(scope="module")
def by_ours(ray: Cluster, by_rays_router: Answered) -> Answered:
    """The same behind ours, whose application stays."""
    ray.deploy(SERVED, **SMALL)
    return converse()
