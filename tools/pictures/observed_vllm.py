"""A real vLLM under `kvscope run`, with Prometheus on both pages and a simulated card beside it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.fakes.nvml import Simulated, build_library, h200, machine
from tests.support.prometheus import Prometheus
from tests.vllm.model import tiny_model
from tools.pictures.situations import Stage, answers, free_port, program, write_configuration

BLOCK_TOKENS = 32
POOL_BLOCKS = 180
"""Conversations of twenty users do not fit."""


ON_CPU = {
    **{k: v for k, v in os.environ.items() if not k.startswith("KVSCOPE_")},
    **{"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"},
    **{"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_HOST_IP": "127.0.0.1"},
    **{"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"},
}
"""Variables for a vLLM without a GPU and a network."""


def vllm_command(python: Path, model: Path, name: str, port: int, *further: str) -> list[str]:
    return [
        *(str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)),
        *("--block-size", str(BLOCK_TOKENS), "--enforce-eager", "--max-model-len", "2048"),
        *("--num-gpu-blocks-override", str(POOL_BLOCKS), "--max-num-seqs", "16"),
        *further,
    ]


def observed_on(port: int, *options: str) -> list[str]:
    """The words to put before a server's command."""
    return [sys.executable, "-P", "-m", "kvscope", "run", "--port", str(port), *options, "--"]


def llama(folder: Path) -> Path:
    """A checkpoint whose layers are all of one kind."""
    return tiny_model(folder, "llama")


@contextmanager
def stage(
    folder: Path,
    python: Path,
    *further: str,
    make: Callable[[Path], Path] = llama,
    name: str = "llama-8b",
) -> Iterator[Stage]:
    """vLLM, kvscope and Prometheus, all up. python: of an environment that has vLLM.

    further: options of vLLM. make: writes the checkpoint that is served as `name`.
    """
    vllm_port, page_port, prometheus_port = free_port(), free_port(), free_port()
    model = make(folder / "model")
    library = build_library(folder / "driver")
    state = folder / "nvml.state"
    Simulated(state).become(machine(h200(processes="", used=0)))
    environment = {
        **ON_CPU,
        **{"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML_STATE": str(state)},
    }
    # One pair of lines is of vLLM's own names on both pages.
    observed = [
        *observed_on(page_port, "--compat", "vllm"),
        *vllm_command(python, model, name, vllm_port, *further),
    ]
    configuration = write_configuration(
        folder, f"127.0.0.1:{page_port}", vllm=f"127.0.0.1:{vllm_port}"
    )
    prometheus = [
        *("prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder}/data"),
        f"--web.listen-address=127.0.0.1:{prometheus_port}",
    ]
    url = f"http://127.0.0.1:{vllm_port}"
    running = Prometheus(f"http://127.0.0.1:{prometheus_port}")
    with ExitStack() as stack:
        for name, command, up in (
            ("vllm", observed, lambda: answers(f"{url}/health")),
            ("prometheus", prometheus, running.ready),
        ):
            stack.enter_context(program(name, command, folder, environment, up))
        running.wait_for('up{job="kvscope"}')
        running.wait_for('up{job="vllm"}')
        yield Stage(url=url, prometheus=running, orders=folder / "unused", folder=folder)
