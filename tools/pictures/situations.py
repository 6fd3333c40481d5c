"""Situations to be seen: our engine on the card while things befall it, real servers under load.

The load is real; the GPU is simulated (card.py), because its faults have to be.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.fakes.nvml import GIB, MIB, build_library
from tests.sglang.server import ON_A_CPU
from tests.support.hybrid_checkpoints import make_hybrid
from tests.support.prometheus import Prometheus
from tests.vllm.model import tiny_model
from tests.vllm.server import free_port, server_environment
from tools.pictures import many
from tools.pictures.stage import (
    ROOT,
    Server,
    kvscope_command,
    load,
    own_environment,
    scraping,
    served,
)

SETTLE_SECONDS = 15.0
BEFORE_SECONDS = 20.0
BLOCK_TOKENS, POOL_BLOCKS = 32, 180
"""In a vLLM and an SGLang: conversations of twenty users do not fit."""
_ENGINE = (
    *("engine", "serve", "--model", "demo", "--max-model-len", "1024"),
    *("--num-gpu-blocks-override", "512", "--max-num-seqs", "32"),
    *("--max-num-batched-tokens", "768", "--max-num-queued-reqs", "56", "--drain-seconds", "1"),
)
MODEL = "llama-8b"
NEIGHBOURS = ("llama-8b", "qwen-3b")
"""Models of two further engines, which nothing befalls: a picture of one engine is that of a table
with one row. They have no card, and chats of a few users each."""


@dataclass(frozen=True, slots=True)
class Window:
    """When a situation is to be seen, in seconds since the epoch, and which Prometheus saw it."""

    began: float
    ended: float
    seen_by: Mapping[str, str]
    """By fleet, the address of its Prometheus."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """Running servers, of which things befall the first one."""

    folder: Path
    servers: list[Server]
    prometheus: dict[str, Prometheus] = field(default_factory=dict)
    """By fleet."""
    crowd: "many.Many | None" = None
    """Fifty servers made of these three."""

    def order(self, **orders: Any) -> None:
        """Set the card's faults from now on; whole, or the card reads half of it."""
        draft = self.folder / "orders.draft"
        draft.write_text(json.dumps(orders))
        draft.replace(self.folder / "orders.json")

    def load(self, scenario: str, *options: str, number: int = 0) -> AbstractContextManager[None]:
        """number: of the server."""
        return load(self.folder, self.servers[number], scenario, *options)


@contextmanager
def ours(*, folder: Path) -> Iterator[Stage]:
    """The engine on the card, its neighbours, fifty servers made of them, a Prometheus on each."""
    library = build_library(folder / "driver")
    variables = own_environment(
        LD_LIBRARY_PATH=str(library.parent),
        FAKE_NVML_STATE=str(folder / "nvml.state"),
        CARD_ORDERS=str(folder / "orders.json"),
    )
    on_card = [kvscope_command()[0], "-m", "tools.pictures.engine_on_card", *_ENGINE]
    commands = [on_card, *[kvscope_command(*_ENGINE, "--no-gpu") for _ in NEIGHBOURS]]
    on = Stage(folder=folder, servers=[])
    with ExitStack() as stack:
        # The engine first, or its absence is the first alert of the picture.
        for command, model in zip(commands, (MODEL, *NEIGHBOURS), strict=True):
            port = free_port()
            url = f"http://127.0.0.1:{port}"
            command += ["--served-model-name", model, "--port", str(port)]
            name = f"engine-{len(on.servers)}"
            stack.enter_context(served(name, command, folder, variables, url))
            on.servers.append(Server(url=url, page=f"127.0.0.1:{port}"))
        on.crowd = many.Many([server.url for server in on.servers])
        address = stack.enter_context(many.serving(on.crowd))
        pages = [{"targets": [server.page for server in on.servers]}]
        on.prometheus["three"] = stack.enter_context(scraping(folder / "three", pages))
        on.prometheus["fifty"] = stack.enter_context(
            scraping(folder / "fifty", many.targets(address), many.SCRAPE_SECONDS)
        )
        yield on


def vllm_command(python: Path, model: Path, port: int, *further: str) -> list[str]:
    return [
        *(str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)),
        *("--block-size", str(BLOCK_TOKENS), "--enforce-eager", "--max-model-len", "2048"),
        *("--num-gpu-blocks-override", str(POOL_BLOCKS), "--max-num-seqs", "16", *further),
    ]


def sglang_command(python: Path, model: Path, port: int) -> list[str]:
    """With a pool of as many tokens as vLLM's."""
    return [
        *(str(python), "-m", "sglang.launch_server", "--model-path", str(model)),
        *("--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)),
        *("--device", "cpu", "--attention-backend", "torch_native", "--disable-cuda-graph"),
        *("--sampling-backend", "pytorch", "--skip-server-warmup", "--context-length", "2048"),
        *("--page-size", str(BLOCK_TOKENS), "--max-running-requests", "16"),
        *("--max-total-tokens", str(POOL_BLOCKS * BLOCK_TOKENS), "--enable-metrics"),
        *("--schedule-conservativeness", "0.1", "--dtype", "float32"),
    ]


@contextmanager
def real(*names: str, folder: Path) -> Iterator[Stage]:
    """Real servers on a CPU under `kvscope run`, each of .venv/NAME, and a Prometheus on them.

    names: of vllm, sglang, and hybrid, a vLLM with a model laid out like gemma-3: two sliding
    windows to one layer of full attention.
    """
    on = Stage(folder=folder, servers=[])
    with ExitStack() as stack:
        for name in names:
            port, page = free_port(), free_port()
            url = f"http://127.0.0.1:{port}"
            python = ROOT / ".venv" / name.replace("hybrid", "vllm") / "bin/python"
            variables = server_environment()
            if name == "hybrid":
                model = make_hybrid(folder / name, "gemma3")
                options = ("--num-gpu-blocks-override", "420", "--dtype", "bfloat16")
                command = vllm_command(python, model, port, *options)
            elif name == "vllm":
                command = vllm_command(python, tiny_model(folder / name, "llama"), port)
            else:
                variables |= ON_A_CPU
                command = sglang_command(python, tiny_model(folder / name, "llama"), port)
            watched = kvscope_command("run", "--port", str(page), "--", *command)
            stack.enter_context(served(name, watched, folder, variables, url))
            on.servers.append(Server(url=url, page=f"127.0.0.1:{page}"))
        pages = [{"targets": [server.page for server in on.servers]}]
        on.prometheus["three"] = stack.enter_context(scraping(folder / "three", pages))
        yield on


def healthy(on: Stage, seconds: float) -> None:
    """Chats that fit: a working set that the prefix cache remembers."""
    on.order()
    options = ("--concurrency", "8", "--sessions", "10", "--max-tokens", "96")
    with on.load("chat", *options, "--ignore-eos"):
        time.sleep(seconds)


def pressure(on: Stage, seconds: float) -> None:
    """Long conversations of many users on the same pool: eviction, queueing, preemption."""
    on.order()
    options = ("--concurrency", "40", "--sessions", "64", "--max-tokens", "192")
    with on.load("mix", *options, "--ignore-eos", *_ending_high(seconds)):
        time.sleep(seconds)


def incident(on: Stage, seconds: float) -> None:
    """Under that pressure a notebook takes the card's memory, and then the card errs."""
    options = ("--concurrency", "64", "--sessions", "64", "--max-tokens", "224", "--ignore-eos")
    began = time.monotonic()
    with on.load("mix", *options, *_ending_high(seconds)):
        while (share := (time.monotonic() - began) / seconds) < 1:
            on.order(**_misfortunes(share))
            if on.crowd is not None:
                on.crowd.has_lost_one = share >= 0.4
            time.sleep(1)
    on.order()


def crowded(on: Stage, seconds: float) -> None:
    """The same on each of several real servers.

    With --ignore-eos, SGLang admits only what will fit, and never retracts.
    """
    options = ("--concurrency", "20", "--sessions", "40", "--max-tokens", "192", "--model", MODEL)
    with ExitStack() as stack:
        for number in range(len(on.servers)):
            rising = (*options, *_ending_high(seconds))
            stack.enter_context(on.load("mix", *rising, number=number))
        time.sleep(seconds)


Situation = Callable[[Stage, float], None]
ON_THE_CARD: dict[str, Situation] = {"healthy": healthy, "pressure": pressure, "incident": incident}
STAGES: dict[str, tuple[Callable[..., Any], dict[str, Situation]]] = {
    "ours": (ours, ON_THE_CARD),
    "servers": (partial(real, "vllm", "sglang"), {"servers": crowded}),
    "hybrid": (partial(real, "hybrid"), {"hybrid": crowded}),
}
"""By name: what is set up in a folder, and what happens there."""
_FEW = ("chat", "--concurrency", "2", "--sessions", "4", "--max-tokens", "64", "--ignore-eos")


def play(on: Stage, situations: Mapping[str, Situation], seconds: float) -> dict[str, Window]:
    """All of them, `seconds` each."""
    windows: dict[str, Window] = {}
    seen_by = {fleet: prometheus.url for fleet, prometheus in on.prometheus.items()}
    for name, happen in situations.items():
        print(f"situation: {name}, {seconds:.0f} s", flush=True)
        now = time.time()
        with ExitStack() as beside:
            for number in range(1, len(on.servers) if happen is not crowded else 1):
                beside.enter_context(on.load(*_FEW, number=number))
            happen(on, seconds)
        began = now + (-BEFORE_SECONDS if windows else SETTLE_SECONDS)
        windows[name] = Window(began, now + seconds, seen_by)
    return windows


def _ending_high(seconds: float) -> tuple[str, ...]:
    """The load rises and falls twice and rises again: what a picture says of "now" is the peak."""
    return ("--period", f"{seconds / 2.5:.0f}")


def _misfortunes(share: float) -> dict[str, Any]:
    """By how much of the incident is over."""
    taken = max(0.0, min(1.0, (share - 0.15) / 0.3))
    hot = {"temperature": 91, "clocks_event_reasons": "0x48", "clock.sm": 870}
    worn = {"remapped.uncorrectable": 1, "remapped.pending": 1, "ecc.uncorrected": 1}
    return {
        "foreign_bytes": round(taken * 5 * GIB) // MIB * MIB,
        "workspace_bytes": GIB if share >= 0.6 else 0,
        "xids": [63, 94] if share >= 0.5 else [],
        "gpu": {**(worn if share >= 0.5 else {}), **(hot if share >= 0.6 else {})},
    }
