"""Runs the runbooks' commands against a real observed vLLM under load, which keeps serving."""

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.alerts.runbook_commands import PAGES, commands, spans
from tests.alerts.runbook_scene import Placeholders, typed
from tests.support.process import kvscope
from tests.support.waiting import wait_for
from tests.vllm.observed import SMALL
from tests.vllm.server import (
    VllmServer,
    free_port,
    kvscope_command,
    server_command,
    server_environment,
    started,
)

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly, pytest.mark.slow),
    pytest.mark.timeout(900),
]

SAYS = {
    r"kvscope doctor http\S+": r"vllm",
    r"kvscope doctor": r"driver",
    r"kvscope advise \S+": r"Over \d\d:\d\d(:\d\d)? to|idle",
    r"kvscope rec save .*": r"run\.kvsr",
    r"kvscope observer stacks .*": r"vllm/v1/engine/core\.py",
    r"kvscope observer on .*": r": on \(process",
    r"curl .*%\{http_code\}.*": r"200",
    r"curl .*/api/preemptions": r"preemptions",
    r"curl .*/api/whatif": r"engines",
    r"curl .*/api/gpu/(release|resume)": r"state|GPU",
    r"ps .*": r"vllm",
}
"""Expected output of each. Others are about Prometheus, Alertmanager and rules."""
SWITCH = "kvscope observer on SOCKET"
COMMANDS = [
    *(text for text in typed() if text.startswith(("kvscope ", "ps ")) or "HOST:" in text),
    SWITCH,
]
WITHOUT_A_GPU = re.compile(r"/api/gpu/")
"""The page has no such path where the driver is not asked."""


@dataclass
class Attended:
    """A vLLM under `kvscope run`, and what the placeholders of the runbooks stand for."""

    server: VllmServer
    places: Placeholders

    def busy(self) -> bool:
        return (
            re.search(r"(?m)^vllm:num_requests_running\{.*\} [1-9]", self.server.page()) is not None
        )


def engine_core(server: VllmServer) -> int:
    """The process whose end would be the server's."""
    found = [
        pid
        for pid in server.descendants()
        if b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(found) == 1, found
    return found[0]


@pytest.fixture(scope="module")
def attended(
    vllm_python: Path,
    models: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Attended]:
    """Disposable: the last test ends it."""
    if shutil.which("curl") is None and os.environ.get("CI") != "true":
        pytest.skip("not on PATH: curl")
    folder = tmp_path_factory.mktemp("attended")
    port, page = free_port(), free_port()
    command = [
        *kvscope_command("run", "--port", str(page), "--no-gpu", "--"),
        *server_command(vllm_python, models("llama"), port, *SMALL),
    ]
    with tempfile.TemporaryDirectory(prefix="kvscope-") as run:  # a path that a socket may have
        variables = server_environment(KVSCOPE_RUN_DIR=run)
        with started(command, variables, port, folder, "vllm") as server:
            events = re.search(r"; events: (\S+)", server.log)
            assert events is not None, server.tail()
            server.complete("warm", 8)
            yield Attended(
                server,
                Placeholders(
                    server=server.url,
                    page=f"http://127.0.0.1:{page}",
                    events=events[1],
                    socket=events[1].replace("*", "engine-0.sock"),
                    pid=server.process.pid,
                    folder=folder,
                    environment=dict(os.environ),
                ),
            )


def test_every_command_about_a_server_is_typed_here_too() -> None:
    assert {c.text for path in PAGES for c in commands(path) if "observer" in c.text} == {SWITCH}
    for command in COMMANDS:
        assert any(re.fullmatch(form, command) for form in SAYS), command


@pytest.mark.parametrize("command", COMMANDS)
def test_a_vllm_serves_on_after_a_command(attended: Attended, command: str) -> None:
    """The requests that were under way are served as well, by the same processes."""
    says = next(says for form, says in SAYS.items() if re.fullmatch(form, command))
    core = engine_core(attended.server)
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(attended.server.complete, "under way", 200)
        if WITHOUT_A_GPU.search(command):
            with pytest.raises(AssertionError):
                attended.places.run(command)
        else:
            said = attended.places.run(command)
            assert re.search(says, said), said
        assert [len(tokens) for tokens in under_way.result()] == [200]
    assert [len(tokens) for tokens in attended.server.complete("afterwards", 8)] == [8]
    assert engine_core(attended.server) == core
    assert attended.server.alive()


def test_a_second_sidecar_reads_its_page_beside(attended: Attended) -> None:
    named = {span for path in PAGES for span in spans(path) if span.startswith("kvscope sidecar")}
    assert named
    for command in named:
        arguments = attended.places.filled(command).split()[1:]
        with kvscope(*arguments, "--port", "0", "--no-gpu") as sidecar:
            sidecar.find(r"(watching)")
    assert [len(tokens) for tokens in attended.server.complete("beside", 8)] == [8]


@pytest.mark.weekly
def test_a_stop_loses_what_the_page_says_that_it_loses(attended: Attended) -> None:
    """Last. SIGTERM, as every ordinary stop sends it, aborts the requests of a vLLM at once."""
    requests = 16  # one alone may end before the signal is handled
    with ThreadPoolExecutor(requests) as pool:
        complete = attended.server.complete
        under_way = [pool.submit(complete, f"under way {n}", 900) for n in range(requests)]
        wait_for(attended.busy, "they run")
        attended.server.send(signal.SIGTERM)
        with pytest.raises((AssertionError, httpx.HTTPError)):
            assert [[len(tokens) for tokens in one.result()] for one in under_way] == [
                [900]
            ] * requests
    attended.server.wait(60)


@pytest.mark.weekly
def test_a_signal_for_our_own_engine_ends_a_vllm_without_our_observer(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    """So the mark in front of it is needed; a server of its own, which is lost."""
    marked = {c.text for path in PAGES for c in commands(path) if c.own_engine_only}
    assert marked == {"kill -USR1 PID"}
    port = free_port()
    command = server_command(vllm_python, models("llama"), port, *SMALL)
    with started(command, server_environment(), port, tmp_path, "bare") as server:
        core = engine_core(server)
        os.kill(core, signal.SIGUSR1)
        wait_for(lambda: not server.alive(), "the server ends with its core", 90)
