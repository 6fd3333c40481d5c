"""The SGLang of these tests, and a tiny model for it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from kvscope.run.plugin_folder import write_plugin_folder
from kvscope_events.events import EngineEvent, Hello
from kvscope_events.memory import StartProgressed
from kvscope_events.wire.subscriber import WireSubscriber
from tests.events.producers import Heard, collect
from tests.sglang.driven import driver_environment
from tests.sglang.http_load import ask, jobs
from tests.sglang.server import (
    SMALL,
    Observed,
    SglangServer,
    observed,
    server_command,
    server_environment,
)
from tests.support.environments import python_of
from tests.support.late_reader import reason_heard
from tests.support.operated import operated
from tests.support.process import ROOT
from tests.support.waiting import wait_for
from tests.vllm.model import tiny_model
from tests.vllm.server import free_port

ENVIRONMENT = Path(os.environ.get("KVSCOPE_SGLANG_ENV") or ROOT / ".venv" / "sglang")
"""Made by scripts/sglang-env, perhaps at this moment: `make nightly` starts it beside itself."""

REFERENCE = jobs(20, seed=5)
"""Asked of an observed SGLang in every situation, and of one that is not."""


@pytest.fixture(scope="session")
def sglang_python() -> Path:
    """SGLang's interpreter. Without one, all tests that need it are skipped; not in CI."""
    return python_of(ENVIRONMENT, "SGLang")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama; bytes are its tokens."""
    return tiny_model(tmp_path_factory.mktemp("models") / "llama", "llama")


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The observer's folder, for the path of an SGLang."""
    folder = tmp_path_factory.mktemp("plugin")
    write_plugin_folder(folder)
    return folder


@pytest.fixture(scope="session")
def environment(plugin: Path) -> dict[str, str]:
    """Variables under which SGLang runs on a CPU, with the observer's folder on its path."""
    return driver_environment(plugin)


AnEvent = TypeVar("AnEvent", bound=EngineEvent)


@dataclass(frozen=True)
class Unobserved:
    """An SGLang whose pages are not observed: what it wrote, answered, and said of its start."""

    log: str
    answers: list[list[int]]
    hello: Hello
    start: StartProgressed
    heard: str
    """The reason on the stream of its scheduler."""


@pytest.fixture(scope="session")
def unobserved(
    sglang_python: Path, model: Path, plugin: Path, tmp_path_factory: pytest.TempPathFactory
) -> Unobserved:
    """Its sessions keep pages, which the observer does not know."""
    folder = tmp_path_factory.mktemp("unobserved")
    (folder / "s").mkdir(mode=0o700)
    environment = server_environment(PYTHONPATH=str(plugin), KVSCOPE_OBSERVER_DIR=str(folder / "s"))
    port = free_port()
    options = (*SMALL, "--enable-streaming-session")
    command = server_command(sglang_python, model, port, *options)
    with operated(SglangServer, command, environment, port, folder, "sglang") as server:
        answers = ask(server, REFERENCE)
        reader = WireSubscriber(f"ipc://{folder}/s/engine-0-worker-0.sock")
        heard = collect(reader, lambda heard: any(event.ready for event in said(Hello, heard)))
        reader.close()
        start = said(StartProgressed, heard)[-1]
        reason = reason_heard(f"ipc://{folder}/s/engine-0.sock")
        return Unobserved(server.log, answers, said(Hello, heard)[-1], start, reason)


def said(kind: type[AnEvent], heard: list[Heard]) -> list[AnEvent]:
    """All events of a kind."""
    return [event for one in heard for event in one.batch.events if isinstance(event, kind)]


@pytest.fixture(scope="session")
def sglang(
    sglang_python: Path,
    model: Path,
    unobserved: Unobserved,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Observed]:
    """One server for all tests over HTTP, which Ctrl-C ends with all that it has started. Begins
    after the end of the other one: an idle scheduler takes a core."""
    with observed(sglang_python, model, tmp_path_factory.mktemp("sglang"), *SMALL) as running:
        yield running
        below = running.server.descendants()
        assert len(below) > 2
        running.server.press_ctrl_c()
        assert running.server.wait() in (0, 130)
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "all ended")
