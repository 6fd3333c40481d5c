"""`python -m tools.pictures.two_servers`: our boards over a vLLM and an SGLang side by side.

Both under `kvscope run`, with the same model, as many tokens in the pool and the same load. The
overview goes to docs/images, every board of SGLang alone to build/screenshots as sglang-*.png.
Needs `make vllm sglang`, tools/render built, and Chromium.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.support.prometheus import Prometheus
from tools.pictures.observed_vllm import (
    BLOCK_TOKENS,
    ON_CPU,
    POOL_BLOCKS,
    llama,
    observed_on,
    vllm_command,
)
from tools.pictures.screenshots import BOARDS, EVERYTHING, IMAGES, Measured, Picture, draw, shrink
from tools.pictures.situations import (
    ROOT,
    SETTLE_SECONDS,
    Stage,
    Window,
    answers,
    free_port,
    program,
    prometheus_command,
    write_configuration,
)

NAME = "llama-8b"
LOAD = (
    # With --ignore-eos, SGLang admits only what will fit, and never retracts.
    *("mix", "--concurrency", "20", "--sessions", "40", "--max-tokens", "192"),
    *("--model", NAME, "--no-ignore-eos"),
)
IMAGE = Picture(dashboard="overview", situation="two", until=400)


def sglang_command(python: Path, model: Path, name: str, port: int, *further: str) -> list[str]:
    """An SGLang on a CPU, with a pool of as many tokens as vLLM's."""
    return [
        *(str(python), "-m", "sglang.launch_server", "--model-path", str(model)),
        *("--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)),
        *("--device", "cpu", "--attention-backend", "torch_native", "--disable-cuda-graph"),
        *("--sampling-backend", "pytorch", "--skip-server-warmup", "--context-length", "2048"),
        *("--page-size", str(BLOCK_TOKENS), "--max-running-requests", "16"),
        *("--max-total-tokens", str(POOL_BLOCKS * BLOCK_TOKENS), "--enable-metrics"),
        *("--schedule-conservativeness", "0.1", "--dtype", "float32"),
        *further,
    ]


@contextmanager
def stage(folder: Path, vllm: Path, sglang: Path) -> Iterator[tuple[Stage, str]]:
    """Both servers and a Prometheus on both, all up; the address of SGLang's page.

    vllm, sglang: interpreters of environments that have them. SGLang is a neighbour of the stage.
    """
    vllm_port, sglang_port, prometheus_port = free_port(), free_port(), free_port()
    pages = free_port(), free_port()
    model = llama(folder / "model")
    environment = {**ON_CPU, "SGLANG_USE_CPU_ENGINE": "1"}
    targets = ",".join(f"127.0.0.1:{port}" for port in pages)
    configuration = write_configuration(folder, targets)
    url, other = (f"http://127.0.0.1:{port}" for port in (vllm_port, sglang_port))
    running = Prometheus(f"http://127.0.0.1:{prometheus_port}")
    commands = (
        ("vllm", observed_on(pages[0]) + vllm_command(vllm, model, NAME, vllm_port), url),
        ("sglang", observed_on(pages[1]) + sglang_command(sglang, model, NAME, sglang_port), other),
    )
    with ExitStack() as stack:
        for name, command, address in commands:
            up = partial(answers, f"{address}/v1/models")
            stack.enter_context(program(name, command, folder, environment, up))
        command = prometheus_command(folder, configuration, prometheus_port)
        stack.enter_context(program("prometheus", command, folder, environment, running.ready))
        running.wait_for('sum(up{job="kvscope"}) == 2')
        on = Stage(
            url=url,
            prometheus=running,
            orders=folder / "unused",
            folder=folder,
            neighbours=(other,),
        )
        yield on, f"127.0.0.1:{pages[1]}"


def measure(folder: Path, vllm: Path, sglang: Path, seconds: float) -> None:
    """Leave in the folder what is drawn from."""
    with stage(folder, vllm, sglang) as (on, instance):
        began = time.time()
        period = ("--period", f"{seconds / 2.5:.0f}")
        with on.load(*LOAD, *period), on.load(*LOAD, *period, url=on.neighbours[0]):
            time.sleep(seconds)
            measured = {"instance": instance, "began": began, "ended": time.time()}
    (folder / "measured.json").write_text(json.dumps(measured))


@contextmanager
def measured_in(folder: Path) -> Iterator[Measured]:
    """Start only Prometheus, on the data of a run."""
    former = json.loads((folder / "measured.json").read_text())
    nothing = folder / "nothing.yml"
    nothing.write_text("scrape_configs: []\n")
    port = free_port()
    running = Prometheus(f"http://127.0.0.1:{port}")
    command = prometheus_command(folder, nothing, port)
    window = Window(name="two", began=former["began"] + SETTLE_SECONDS, ended=former["ended"])
    with program("drawing", command, folder, os.environ, running.ready):
        yield Measured(
            url=running.url, url_of_many="", instance=former["instance"], windows=[window]
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180, help="of the load")
    parser.add_argument("--vllm", type=Path, default=ROOT / ".venv/vllm/bin/python")
    parser.add_argument("--sglang", type=Path, default=ROOT / ".venv/sglang/bin/python")
    parser.add_argument("--folder", type=Path, help="keep what was measured here")
    parser.add_argument("--again", action="store_true", help="draw what --folder has")
    arguments = parser.parse_args()
    EVERYTHING.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        if not arguments.again:
            measure(folder, arguments.vllm, arguments.sglang, arguments.seconds)
        measured = stack.enter_context(measured_in(folder))
        (window,) = measured.windows
        image = IMAGES / "sglang-overview.png"
        good = [draw(measured, window, IMAGE, image)]
        shrink(image)
        whole = Picture(dashboard="overview", situation="two")
        good.append(draw(measured, window, whole, EVERYTHING / "two-overview.png"))
        for board in BOARDS:
            alone = replace(whole, dashboard=board, fleet="one")
            good.append(draw(measured, window, alone, EVERYTHING / f"sglang-{board}.png"))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
