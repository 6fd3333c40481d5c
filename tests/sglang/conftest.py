"""The SGLang of these tests, and a tiny model for it."""

import os
from pathlib import Path

import pytest

from kvscope.run.plugin_folder import write_plugin_folder
from tests.support.environments import python_of
from tests.support.process import ROOT
from tests.vllm.model import tiny_model

ENVIRONMENT = Path(os.environ.get("KVSCOPE_SGLANG_ENV") or ROOT / ".venv" / "sglang")
"""Made by scripts/sglang-env, perhaps at this moment: `make nightly` starts it beside itself."""


@pytest.fixture(scope="session")
def sglang_python() -> Path:
    """SGLang's interpreter. Without one, all tests that need it are skipped; not in CI."""
    return python_of(ENVIRONMENT, "SGLang")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama; bytes are its tokens."""
    return tiny_model(tmp_path_factory.mktemp("models") / "llama", "llama")


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables under which SGLang runs on a CPU, with the observer's folder on its path."""
    folder = tmp_path_factory.mktemp("plugin")
    write_plugin_folder(folder)
    return {
        **os.environ,
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
