"""Three situations one after another, under a real Prometheus: healthy, pressure, incident.

`python -m tools.pictures.situations --hold` runs them and leaves Prometheus up. The load is real;
the GPU is simulated (card.py), because its faults have to be. Rules are those of alerts/, with
every `for` shortened so that minutes are enough.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.fakes.nvml import GIB, MIB, build_library
from tests.support.prometheus import Prometheus
from tests.support.waiting import wait_for
from tools.pictures.many import Many, scrape_instead, serving

ROOT = Path(__file__).resolve().parents[2]
SCRAPE_SECONDS = 3
FASTER = 10
"""Alerts wait a tenth of their time."""
START_SECONDS = 300.0
SETTLE_SECONDS = 15.0
BEFORE_SECONDS = 20.0
POOL_BLOCKS = 512

_ENGINE = (
    *("serve", "--model", "demo", "--max-model-len", "1024"),
    *("--num-gpu-blocks-override", str(POOL_BLOCKS), "--max-num-seqs", "32"),
    *("--max-num-batched-tokens", "768", "--max-num-queued-reqs", "56", "--drain-seconds", "1"),
)
MODEL = "llama-8b"
NEIGHBOURS = ("llama-8b", "qwen-3b")
"""Models of two further engines, which nothing befalls: a picture of one engine is that of a table
with one row. They have no card, and chats of a few users each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When a situation is to be seen, in seconds since the epoch."""

    name: str
    began: float
    """For the first, when its load was under way; of the others, a little before they came."""
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A running engine on the card, with what happens to it, and its neighbours."""

    url: str
    prometheus: Prometheus
    orders: Path
    folder: Path
    neighbours: tuple[str, ...] = ()
    """Their addresses."""
    many: Many | None = None
    """Fifty servers made of these three, if they are wanted."""
    prometheus_of_many: Prometheus | None = None

    def order(self, **orders: Any) -> None:
        """Set the card's faults from now on; whole, or the card reads half of it."""
        draft = self.orders.with_suffix(".draft")
        draft.write_text(json.dumps(orders))
        draft.replace(self.orders)

    @contextmanager
    def load(self, scenario: str, *options: str, url: str = "") -> Iterator[None]:
        """`kvscope load` until the block ends. url: of another engine than that on the card."""
        to = url or self.url
        command = [sys.executable, "-P", "-m", "kvscope", "load", scenario, "--url", to]
        with (self.folder / "load.log").open("a") as log:
            arguments = [*command, "--duration", "86400", "--ignore-eos", *options]
            child = subprocess.Popen(arguments, cwd=ROOT, stdout=log, stderr=log)
            with _ended(child):
                yield


@contextmanager
def stage(folder: Path, *, with_many: bool = False) -> Iterator[Stage]:
    """The engine on the card, its neighbours, and Prometheus on them, all up.

    with_many: also fifty servers, and a Prometheus on those.
    """
    library = build_library(folder / "driver")
    orders, state = folder / "orders.json", folder / "nvml.state"
    engine_port, prometheus_port = free_port(), free_port()
    neighbours = {free_port(): model for model in NEIGHBOURS}
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("KVSCOPE_")},
        "LD_LIBRARY_PATH": str(library.parent),
        "FAKE_NVML_STATE": str(state),
        "CARD_ORDERS": str(orders),
    }
    targets = ",".join(f"127.0.0.1:{port}" for port in (engine_port, *neighbours))
    configuration = write_configuration(folder, targets)
    alone = [*(sys.executable, "-P", "-m", "kvscope"), *_ENGINE, "--no-gpu"]
    engine = [sys.executable, "-m", "tools.pictures.engine_on_card", *_ENGINE]
    server = prometheus_command(folder, configuration, prometheus_port)
    url = f"http://127.0.0.1:{engine_port}"
    running = Prometheus(f"http://127.0.0.1:{prometheus_port}")
    # The engine first, or its absence is the first alert of the picture.
    steps: tuple[tuple[str, list[str], Callable[[], bool]], ...] = (
        (
            "engine",
            [*engine, "--served-model-name", MODEL, "--port", str(engine_port)],
            lambda: answers(f"{url}/health"),
        ),
        *(
            (
                f"neighbour-{port}",
                [*alone, "--served-model-name", model, "--port", str(port)],
                partial(answers, f"http://127.0.0.1:{port}/health"),
            )
            for port, model in neighbours.items()
        ),
        ("prometheus", server, running.ready),
    )
    with ExitStack() as stack:
        for name, command, up in steps:
            stack.enter_context(program(name, command, folder, environment, up))
        running.wait_for(f'sum(up{{job="kvscope"}}) == {1 + len(neighbours)}')
        others = tuple(f"http://127.0.0.1:{port}" for port in neighbours)
        many = Many((url, *others)) if with_many else None
        yield Stage(
            url=url,
            prometheus=running,
            orders=orders,
            folder=folder,
            neighbours=others,
            many=many,
            prometheus_of_many=None
            if many is None
            else stack.enter_context(_prometheus_of(many, folder)),
        )


@contextmanager
def _prometheus_of(many: Many, folder: Path) -> Iterator[Prometheus]:
    own, port = folder / "many", free_port()
    own.mkdir()
    running = Prometheus(f"http://127.0.0.1:{port}")
    with serving(many) as address:
        configuration = write_configuration(own, address)
        scrape_instead(configuration, address)
        command = prometheus_command(own, configuration, port)
        with program("prometheus", command, own, os.environ, running.ready):
            yield running


def prometheus_command(folder: Path, configuration: Path, port: int) -> list[str]:
    """Its data is, or comes, in the folder."""
    return [
        *("prometheus", f"--config.file={configuration}"),
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]


@contextmanager
def program(
    name: str,
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    up: Callable[[], bool],
) -> Iterator[None]:
    """A program from when it is up until the block ends; its log is in the folder."""
    with (folder / f"{name}.log").open("w") as log:
        child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        with _ended(child):
            wait_for(up, f"{name} starts, see its log in {folder}", START_SECONDS)
            yield


def write_configuration(folder: Path, target: str, **others: str) -> Path:
    """The shipped configuration and rules, for these engines, this interval and shorter `for`s.

    target: addresses with commas between them. others: further ones, by the name of their job.
    """
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    interval = f"{SCRAPE_SECONDS}s"
    config["global"] = {
        **{"scrape_interval": interval, "scrape_timeout": interval},
        "evaluation_interval": interval,
    }
    config["rule_files"] = ["rules/*.yml"]
    config.pop("alerting", None)
    config["scrape_configs"] = [
        {"job_name": job, "static_configs": [{"targets": addresses.split(",")}]}
        for job, addresses in {"kvscope": target, **others}.items()
    ]
    (folder / "rules").mkdir()
    for source in (ROOT / "alerts" / "kvscope.rules.yml",):  # the others want servers of theirs
        rules = yaml.safe_load(source.read_text())
        for rule in (rule for group in rules["groups"] for rule in group["rules"]):
            for wait in ("for", "keep_firing_for"):
                if wait in rule:
                    rule[wait] = f"{max(1, round(_seconds(rule[wait]) / FASTER))}s"
        for group in rules["groups"]:
            group.pop("interval", None)
        (folder / "rules" / source.name).write_text(yaml.safe_dump(rules))
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


_FEW = ("--concurrency", "2", "--sessions", "4", "--max-tokens", "64")


def healthy(on: Stage, seconds: float) -> None:
    """Chats that fit: a working set that the prefix cache remembers."""
    on.order()
    with on.load("chat", "--concurrency", "8", "--sessions", "10", "--max-tokens", "96"):
        time.sleep(seconds)


def pressure(on: Stage, seconds: float) -> None:
    """Long conversations of many users on the same pool: eviction, queueing, preemption."""
    on.order()
    options = ("--concurrency", "40", "--sessions", "64", "--max-tokens", "192")
    with on.load("mix", *options, *_ending_high(seconds)):
        time.sleep(seconds)


def incident(on: Stage, seconds: float) -> None:
    """Under that pressure a notebook takes the card's memory, and then the card errs."""
    options = ("--concurrency", "64", "--sessions", "64", "--max-tokens", "224")
    began = time.monotonic()
    with on.load("mix", *options, *_ending_high(seconds)):
        while (share := (time.monotonic() - began) / seconds) < 1:
            on.order(**_misfortunes(share))
            if on.many is not None:
                on.many.misfortunes(share)
            time.sleep(1)
    on.order()


SITUATIONS: dict[str, Callable[[Stage, float], None]] = {
    "healthy": healthy,
    "pressure": pressure,
    "incident": incident,
}


def play(on: Stage, seconds: float) -> list[Window]:
    """All of them, `seconds` each."""
    windows: list[Window] = []
    for name, happen in SITUATIONS.items():
        print(f"situation: {name}, {seconds:.0f} s", flush=True)
        now = time.time()
        with ExitStack() as beside:
            for url in on.neighbours:
                beside.enter_context(on.load("chat", *_FEW, url=url))
            happen(on, seconds)
        began = now + (-BEFORE_SECONDS if windows else SETTLE_SECONDS)
        windows.append(Window(name=name, began=began, ended=now + seconds))
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


@contextmanager
def _ended(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    try:
        yield
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.TransportError:
        return False


def _seconds(duration: str) -> int:
    """Seconds of a duration with one unit, as in the rules."""
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[duration[-1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="of each situation")
    parser.add_argument("--hold", action="store_true", help="leave Prometheus up until Ctrl-C")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kvscope-situations-"))
    try:
        with stage(folder) as on:
            print(f"Prometheus: {on.prometheus.url}, files: {folder}", flush=True)
            windows = play(on, arguments.seconds)
            for window in windows:
                print(f"{window.name}: {window.began:.0f} to {window.ended:.0f}", flush=True)
            while arguments.hold:
                time.sleep(1)
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
