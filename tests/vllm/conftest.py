"""The vLLM of these tests, tiny models for it, and what an unobserved one answers."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.process import ROOT
from tests.vllm.server import VllmServer, free_port, server_command, server_environment, started

ENVIRONMENT = Path(os.environ.get("VLLM_ENV") or ROOT / ".venv" / "vllm")
"""Made by scripts/vllm-env, perhaps at this moment: `make test` starts it in the background."""
SHAPE: dict[str, object] = {
    "head_dim": 32,  # vLLM's smallest on a CPU
    "hidden_size": 128,
    "intermediate_size": 256,
    "max_position_embeddings": 4096,
}
WINDOW = 128


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """vLLM's interpreter. Where there is none, all tests that need it are skipped; not in CI."""
    lock = ENVIRONMENT / ".lock"
    if lock.exists():
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_SH)  # until an installation under way has ended
    if (ENVIRONMENT / ".installed").exists():
        return ENVIRONMENT / "bin" / "python"
    failed = ENVIRONMENT / ".failed"
    reason = failed.read_text().strip() if failed.exists() else "not installed, see `make vllm`"
    if os.environ.get("CI") == "true":
        pytest.fail(f"no vLLM under {ENVIRONMENT}: {reason}")
    pytest.skip(f"NO VLLM, nothing was tested with one: {reason}")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny random model by architecture, made at first use: bytes are its tokens."""
    folder = tmp_path_factory.mktemp("models")

    def model(architecture: str) -> Path:
        made = folder / architecture
        if not made.exists():
            make_checkpoint(made, architecture, **SHAPE | {"sliding_window": WINDOW})
        return made

    return model
