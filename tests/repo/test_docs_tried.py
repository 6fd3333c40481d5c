"""The documents ask a reader to type commands, options, addresses, variables: each is tried."""

import functools
import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer

from kvscope.options.listen import SIDECAR_PORT
from kvscope.plan.form import plan_router
from kvscope.replay.app import replay_app
from kvscope.replay.past import past_router
from kvscope.run.api_server import DEFAULT_PORTS
from kvscope_engine.server.control import create_control_app
from kvscope_exporter.paths import PATHS
from kvscope_exporter.web.fleet import fleet_router
from kvscope_exporter.web.orders import gpu_router
from kvscope_exporter.web.recordings import recordings_router
from kvscope_exporter.web.sidecar_app import sidecar_app
from tests.repo.checkout import ROOT, project_files, python_files, relative
from tests.repo.documented import (
    COMMANDS,
    GROUPS,
    PAGES,
    Address,
    Line,
    addresses,
    command_lines,
    commands_in_text,
    spans,
)
from tests.server.test_paths import NOTHING, paths_of
from tools.reference.environment import environment_page

UsageError: Any = typer.BadParameter.__base__

FOREIGN_OPTIONS = {
    "--cpus": "docker run",
    "--gpus": "docker run",
    "--from-literal": "kubectl create secret",
    "--image": "kubectl run",
    "--k8s-label-selector": "production-stack's router",
    "--restart": "kubectl run",
    "--previous": "kubectl logs",
    "--kill-whom": "systemctl kill",
    "--load-format": "vllm serve",
    "--scheduler-reserve-full-isl": "vllm serve",
    "--startup-weight-load-mode": "sglang",
    "--zmq-kv-events-ports": "Dynamo's mocker",
}
FOREIGN_PATHS = {
    "/wake_up": "vLLM in development mode",
    "/abort_request": "SGLang",
    "/d/kvscope-service-levels": "Grafana",
}
OWN_PORTS = {
    "docs/guides/a-night.md": {8101},  # of a simulated fleet
    "docs/concepts/kv-events.md": {6000},  # of an engine that connects to the sidecar
}
_ADDRESS_IN_CODE = re.compile(r"(?:://[\w.*-]+|HOST):(\d{4,5})\b")
_SET_ON_PAGE = re.compile(r"(?:--port[ =]|\bPORT=)(\d{2,5})\b")


def _lines(found: list[Line]) -> Any:
    unique = {line.id: line for line in found if "[OPTIONS]" not in line.arguments}
    return pytest.mark.parametrize("line", unique.values(), ids=unique)


def flags_of(command: str) -> set[str]:
    flags = {flag for p in COMMANDS[command].params for flag in (*p.opts, *p.secondary_opts)}
    return {flag for flag in flags if flag.startswith("-")} | {"--help", "-h"}


@_lines([*command_lines()])
def test_a_command_line_is_understood(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsed as kvscope does, but not run; files are absent here."""
    monkeypatch.chdir(tmp_path)
    assert line.command in COMMANDS, "no such command"
    command = COMMANDS[line.command]
    problem = ""
    try:
        command.make_context(line.command, [*line.arguments])
    except typer.Exit:  # --help
        pass
    except UsageError as error:
        problem = error.format_message()
    assert not problem or problem.endswith("does not exist.")


@_lines([*commands_in_text()])
def test_a_command_in_a_sentence_has_its_options(line: Line) -> None:
    """Its values may stand for others, so it is not parsed."""
    if line.command in GROUPS and not line.arguments:
        return
    assert line.command in COMMANDS
    own = takewhile(lambda word: word != "--", line.arguments)
    flags = {word.partition("=")[0] for word in own if re.match(r"--?[a-z]", word)}
    assert flags <= flags_of(line.command)


@functools.cache
def _code() -> str:
    """Everything of the checkout but documents and the lists of exceptions to this test."""
    here = Path(__file__).parent
    return "\n".join(
        path.read_text(errors="ignore")
        for path in project_files()
        if path.suffix in (".py", ".js", ".mjs", ".ts", ".tsx", ".sh", ".yml", ".yaml", ".toml", "")
        and not path.is_relative_to(here)
    )


def test_every_option_in_a_sentence_is_one_of_something() -> None:
    known = set(re.findall(r"--[a-z][a-z0-9-]+", _code())) | FOREIGN_OPTIONS.keys()
    known |= {flag for command in COMMANDS for flag in flags_of(command)} | {"--version"}
    for page in PAGES:
        named = {
            flag
            for span in spans(page.read_text())
            for flag in re.findall(r"(?:^|\s)(--[a-z][a-z0-9-]+)", span)
        }
        assert named <= known, f"{relative(page)}: {named - known}"


@functools.cache
def _ports() -> set[int]:
    """Defaults of options, of the stack and of the servers that are watched."""
    options = {
        parameter.default
        for command in COMMANDS.values()
        for parameter in command.params
        if "--port" in parameter.opts and parameter.default is not None
    }
    stack = re.findall(r"^#? ?\w*PORT=(\d+)$", (ROOT / ".env.example").read_text(), re.MULTILINE)
    sources = python_files("engine", "exporter", "kvscope")
    named = {port for path in sources for port in _ADDRESS_IN_CODE.findall(path.read_text())}
    return {int(port) for port in (*options, *stack, *named)} | {
        SIDECAR_PORT,
        *DEFAULT_PORTS.values(),
    }


@functools.cache
def _routes() -> list[re.Pattern[str]]:
    """Every path of our servers; a part in braces stands for any."""
    apps = (sidecar_app(NOTHING), create_control_app(NOTHING))
    routers = (
        *(gpu_router(NOTHING), fleet_router(NOTHING), plan_router(), past_router(NOTHING)),
        *(recordings_router(NOTHING, NOTHING), replay_app(NOTHING)),
    )
    paths = {path for each in (*apps, *routers) for path in paths_of(each.routes)}
    paths |= {row.path for row in PATHS if not row.path.endswith("/")} | FOREIGN_PATHS.keys()
    return [re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in paths]


@pytest.mark.parametrize(
    "address", sorted({*addresses()}), ids=lambda each: f"{each.page}:{each.port}{each.path}"
)
def test_an_address_leads_somewhere(address: Address) -> None:
    page = (ROOT / address.page).read_text()
    on_page = {int(port) for port in _SET_ON_PAGE.findall(page)}
    assert address.port in _ports() | on_page | OWN_PORTS.get(address.page, set())
    if address.path.strip("/"):
        assert any(route.fullmatch(address.path) for route in _routes())


def test_every_variable_exists() -> None:
    listed = set(re.findall(r"`([A-Z0-9_]+)`", environment_page()))
    known = listed | set(re.findall(r"KVSCOPE_[A-Z0-9_]*[A-Z0-9]", _code()))
    for page in PAGES:
        if page.name != "environment.md":
            named = set(re.findall(r"\bKVSCOPE_[A-Z0-9_]*[A-Z0-9]\b", page.read_text()))
            assert named <= known, f"{relative(page)}: {named - known}"


def test_the_documents_are_read_as_they_are_written() -> None:
    """A test that finds nothing to try passes always."""
    assert len([*command_lines()]) > 100
    assert len([*commands_in_text()]) > 200
    assert len({*addresses()}) > 30
