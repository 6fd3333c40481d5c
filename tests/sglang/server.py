"""A real SGLang as an operator starts it: its HTTP server, on a CPU, with a tiny model."""

import itertools
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.operated import Operated, operated
from tests.support.pages import sample
from tests.support.process import FULL_PAGES
from tests.support.states import States
from tests.support.waiting import wait_for
from tests.vllm.server import free_port, kvscope_command

PAGE = 16
SMALL = (
    *("--max-total-tokens", "704", "--page-size", str(PAGE), "--max-running-requests", "6"),
    *("--context-length", "512", "--schedule-conservativeness", "0.1"),
)
"""A pool that a few requests outgrow, so that running ones are retracted and contents evicted."""
ON_A_CPU = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRITON_INTERPRET": "1",  # up to 0.5.21 for the allocator of pages
}
STEPS = "kvscope_step_duration_seconds_count"


def server_command(python: Path, model: Path, port: int, *options: str) -> list[str]:
    """In float32: with half of it, a token may depend on what else is in its batch."""
    return [
        *(str(python), "-m", "sglang.launch_server", "--model-path", str(model)),
        *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)),
        *("--device", "cpu", "--dtype", "float32", "--attention-backend", "torch_native"),
        *("--sampling-backend", "pytorch", "--disable-cuda-graph", "--skip-server-warmup"),
        *("--enable-metrics", *options),
    ]


def server_environment(**further: str) -> dict[str, str]:
    """This process's environment, for an SGLang without an accelerator, whose /health asks for no
    token."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("KVSCOPE_")}
    kept.pop("PYTHONPATH", None)
    quiet = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0", "PYTHONUNBUFFERED": "1"}
    return kept | FULL_PAGES | ON_A_CPU | quiet | further


@dataclass
class SglangServer(Operated):
    """A running SGLang."""

    software = "sglang"
    busy = ("sglang:num_running_reqs", "sglang:num_queue_reqs")

    def generate(self, prompt: list[int], max_tokens: int) -> list[int]:
        """Greedy tokens; may end early."""
        sampling = {"max_new_tokens": max_tokens, "temperature": 0}
        tokens: list[int] = self.post("/generate", input_ids=prompt, sampling_params=sampling)[
            "output_ids"
        ]
        return tokens

    def stream(self, prompt: list[int], max_tokens: int, most: int | None = None) -> list[int]:
        """The same in pieces; the client leaves after `most` of them, if that is not None."""
        body = {
            "input_ids": prompt,
            "sampling_params": {"max_new_tokens": max_tokens, "temperature": 0},
            "stream": True,
        }
        tokens: list[int] = []
        with (
            httpx.Client(timeout=120) as client,
            client.stream("POST", f"{self.url}/generate", json=body) as answer,
        ):
            assert answer.status_code == 200, self.tail()
            lines = (line for line in answer.iter_lines() if line.startswith("data: {"))
            for line in itertools.islice(lines, most):
                tokens = json.loads(line.removeprefix("data: "))["output_ids"]
        return tokens

    def flush(self) -> None:
        """Have it forget its tree, while nothing runs."""
        answer = httpx.post(f"{self.url}/flush_cache", params={"timeout": 30}, timeout=60)
        assert answer.status_code == 200, answer.text

    def pause(self) -> None:
        """Have it retract what runs, as for new weights; its gauges are written at once."""
        self.post("/pause_generation", mode="retract")

    def resume(self) -> None:
        self.post("/continue_generation")

    def said_by_us(self) -> list[str]:
        """The first word of each line that the observer has written into its log."""
        return re.findall(r"\] kvscope: (\w+)", self.log)


@dataclass
class Observed:
    """A running SGLang under `kvscope run`."""

    server: SglangServer
    url: str
    """Base URL of the page beside it."""
    sockets: str
    states: States
    """Those of the page while it started."""

    def page(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=30).text

    def value(self, name: str, **labels: str) -> float | None:
        return sample(self.page(), name, **labels)

    def rest(self) -> None:
        """Until SGLang is idle, and has written its own page."""
        self.server.wait_idle()
        # Its gauges are else those of its last line of log, or half a minute old.
        self.server.pause()
        self.server.resume()

    def settle(self) -> None:
        """The same, until our page has all of its steps and of its requests' ends."""
        self.rest()
        theirs = self.server.page()
        modes = ("prefill_none", "decode_none")
        name = "sglang:cuda_graph_passes_total"
        steps = sum(sample(theirs, name, mode=mode) or 0 for mode in modes)
        wait_for(lambda: self._folded(steps), f"{steps} steps are folded")

    def _folded(self, steps: float) -> bool:
        page = self.page()
        open_requests = sum(
            sample(page, "kvscope_requests", state=state) or 0 for state in ("running", "waiting")
        )
        return (sample(page, STEPS) or 0) >= steps and not open_requests


@contextmanager
def observed(
    python: Path, model: Path, folder: Path, *options: str, **variables: str
) -> Iterator[Observed]:
    """`kvscope run -- SGLang`."""
    port, page_port = free_port(), free_port()
    command = [
        *kvscope_command("run", "--port", str(page_port), "--no-gpu", "--compat", "vllm", "--"),
        *server_command(python, model, port, *options),
    ]
    with ExitStack() as stack:
        # Not below `folder`, whose path may be too long for sockets.
        run = stack.enter_context(tempfile.TemporaryDirectory(prefix="kvscope-"))
        environment = server_environment(KVSCOPE_RUN_DIR=run, **variables)
        page = f"http://127.0.0.1:{page_port}"
        states = States(page)
        stack.callback(states.stop)
        server = stack.enter_context(
            operated(SglangServer, command, environment, port, folder, "sglang")
        )
        (sockets,) = Path(run).glob("*/sockets")
        wait_for(lambda: states.seen[-1:] == ["ready"], "it is ready", 60)
        states.stop()
        yield Observed(server, page, f"ipc://{sockets}/engine-0.sock", states)
