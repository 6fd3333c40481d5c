"""The vLLM of these tests, tiny models for it, and what an unobserved one answers."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from kvscope.run.plugin_folder import write_plugin_folder
from tests.support.environments import python_of
from tests.support.hybrid_checkpoints import make_hybrid
from tests.support.pages import sample
from tests.support.process import ROOT, Process, completed, kvscope
from tests.support.waiting import wait_for
from tests.vllm.model import tiny_model
from tests.vllm.observed import PROMPTS, SMALL, WITNESS
from tests.vllm.server import (
    free_port,
    plugin_folder,
    server_command,
    server_environment,
    started,
)

ENVIRONMENT = Path(os.environ.get("KVSCOPE_VLLM_ENV") or ROOT / ".venv" / "vllm")
"""Made by scripts/vllm-env, perhaps at this moment: `make test` starts it in the background."""


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """vLLM's interpreter. Without one, all tests that need it are skipped; not in CI."""
    return python_of(ENVIRONMENT, "vLLM")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny random model by architecture, made at first use: bytes are its tokens."""
    folder = tmp_path_factory.mktemp("models")

    def model(architecture: str) -> Path:
        made = folder / architecture
        if not made.exists():
            tiny_model(made, architecture)
        return made

    return model


@pytest.fixture(scope="session")
def hybrid_models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny random model with several kinds of KV cache by architecture, made at first use."""
    folder = tmp_path_factory.mktemp("hybrids")

    def model(architecture: str) -> Path:
        made = folder / architecture
        return made if made.exists() else make_hybrid(made, architecture)

    return model


@dataclass(frozen=True)
class Unobserved:
    """A vLLM that the observer stayed out of: what it wrote, and what it answered."""

    log: str
    pages: list[str]
    """From a sidecar that was there first, and from one that came later."""
    switched: str
    """The answer to an order to its observer."""
    answers: list[list[int]]


def page_of_ready(sidecar: Process) -> str:
    """Once it shows its server as ready."""
    url = sidecar.find(r"(http://[\d.]+:\d+)/targets")

    def page() -> str:
        return httpx.get(f"{url}/metrics", timeout=30).text

    wait_for(
        lambda: sample(page(), "kvscope_server_state", state="ready") == 1, "the server is ready"
    )
    return page()


@pytest.fixture(scope="session")
def unobserved(
    vllm_python: Path,
    models: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Unobserved:
    """It is another vLLM than any that we know: a parameter has another name, before we look."""
    folder = tmp_path_factory.mktemp("other")
    sockets = folder / "s"
    sockets.mkdir(mode=0o700)
    plugin = plugin_folder(folder / "witness", "kvscope_witness", WITNESS)
    write_plugin_folder(folder / "observer")
    environment = server_environment(
        PYTHONPATH=f"{plugin}{os.pathsep}{folder / 'observer'}",  # loaded in this order
        KVSCOPE_OBSERVER_DIR=str(sockets),
        KVSCOPE_WITNESS_RENAMES="1",
    )
    port = free_port()
    command = server_command(vllm_python, models("llama"), port, *SMALL)
    sidecar = ("sidecar", "--port", "0", "--no-gpu", "--events", f"v=ipc://{sockets}/*")
    with (
        kvscope(*sidecar) as first,
        started(command, environment, port, folder, "vllm") as server,
        kvscope(*sidecar) as later,
    ):
        answers = [answer for prompt in PROMPTS for answer in server.complete(prompt, 24)]
        pages = [page_of_ready(each) for each in (first, later)]
        order = completed("observer", "off", f"{sockets}/engine-0.sock")
        return Unobserved(server.log, pages, order.stdout + order.stderr, answers)
