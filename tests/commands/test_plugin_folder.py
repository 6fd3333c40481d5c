"""The folder that is put on a vLLM's PYTHONPATH: complete, found by vLLM, nothing else in it."""

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope.run.plugin_folder import GROUPS, PLUGIN, with_plugin, write_plugin_folder
from kvscope_events.wire.endpoint import EndpointError
from tests.repo.checkout import ROOT, project_files

LOADS = """
import sys
from importlib.metadata import entry_points
sys.path.insert(0, sys.argv[1])
for group in ("vllm.general_plugins", "sglang.srt.plugins"):
    (found,) = entry_points(group=group, name="kvscope")
    register = found.load()
    import kvscope_events
    assert kvscope_events.__file__.startswith(sys.argv[1]), kvscope_events.__file__
    register()
    register()
"""


def test_the_entry_point_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "kvscope_events" / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {
        group: {PLUGIN: f"kvscope_events.observers.{server}:register"}
        for group, server in GROUPS.items()
    }


def test_it_holds_the_package_and_its_metadata_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    write_plugin_folder(folder)
    (folder / "kvscope_events" / "left_over.py").write_text("")
    write_plugin_folder(folder)
    written = {p.relative_to(folder) for p in folder.rglob("*") if p.is_file()}
    package = {
        path.relative_to(ROOT)
        for path in project_files()
        if path.relative_to(ROOT).parts[0] == "kvscope_events"
        and path.name not in ("pyproject.toml", "README.md")
    }
    assert {path for path in written if path.parts[0] == "kvscope_events"} == package
    assert {p.name for p in written - package} == {"METADATA", "entry_points.txt"}


def test_a_server_that_starts_meanwhile_finds_all_of_it_or_nothing(tmp_path: Path) -> None:
    """Its plugins are the entry points of what it finds; without them it starts unobserved."""
    write_plugin_folder(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    (last,) = tmp_path.glob("*.dist-info/entry_points.txt")
    assert max(files, key=lambda path: path.stat().st_mtime_ns) == last
    first = min(files, key=lambda path: path.stat().st_mtime_ns)
    assert first.name == "METADATA", "a copy that was interrupted is ours"
    last.unlink()
    (tmp_path / "kvscope_events" / "limits.py").unlink()
    write_plugin_folder(tmp_path)
    assert last.exists()
    subprocess.run([sys.executable, "-c", LOADS, str(tmp_path)], check=True, cwd=tmp_path)


def test_an_equal_copy_stays_untouched_and_another_one_is_replaced(tmp_path: Path) -> None:
    """A server may be loading it: after a restart of the machine both start at once."""
    write_plugin_folder(tmp_path)
    module = tmp_path / "kvscope_events" / "limits.py"
    (compiled := module.parent / "__pycache__").mkdir()
    before = {path: path.stat().st_ino for path in tmp_path.rglob("*")}
    write_plugin_folder(tmp_path)
    assert {path: path.stat().st_ino for path in tmp_path.rglob("*")} == before
    complete = module.read_text()
    for damage in (lambda: module.write_text(""), module.unlink):
        damage()
        write_plugin_folder(tmp_path)
        assert module.read_text() == complete
        assert not compiled.exists()


@pytest.mark.parametrize("facts", [None, "kvscope_events-0.1.0.dist-info/RECORD"])
def test_a_checkout_or_an_installation_is_not_overwritten(
    tmp_path: Path, facts: str | None
) -> None:
    kept = tmp_path / "kvscope_events" / "work.py"
    for path in [kept] if facts is None else [kept, tmp_path / facts]:
        path.parent.mkdir()
        path.touch()
    with pytest.raises(FileExistsError, match="not a copy that kvscope made"):
        write_plugin_folder(tmp_path)
    assert kept.exists()


SHOW_SOCKETS = """
import sys
from kvscope_events.observers.endpoints import directory
print(*map(directory, sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("given", "vllm", "sglang"),
    [
        ({"KVSCOPE_RUN_DIR": "/r"}, "/r/vllm", "/r/sglang"),
        ({"KVSCOPE_OBSERVER_DIR": "/o"}, "/o", "/o"),
    ],
)
def test_each_server_takes_the_directory_that_the_command_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], vllm: str, sglang: str
) -> None:
    for variable in ("KVSCOPE_RUN_DIR", "KVSCOPE_OBSERVER_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    printed = CliRunner().invoke(app, ["observer", "install", str(tmp_path / "plugin")]).output
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(SHOW_SOCKETS)} vllm sglang"
    done = subprocess.run(
        ["sh", "-c", f"{printed}\n{command}"], env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [vllm, sglang]
    watched = [line.split("'")[1] for line in printed.splitlines() if line.startswith("# ")]
    assert watched == list(dict.fromkeys([f"ipc://{vllm}/*", f"ipc://{sglang}/*"]))


def test_a_python_without_kvscope_loads_it_and_lives_on_without_vllm(tmp_path: Path) -> None:
    write_plugin_folder(tmp_path)
    code = "import sys; sys.modules['vllm'] = None\n" + LOADS
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path)],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert all(line.startswith("kvscope: ") for line in done.stderr.splitlines()), done.stderr


def test_other_plugins_and_paths_stay() -> None:
    folder = Path("/plugin")
    assert with_plugin({"A": "b"}, folder) == {"A": "b", "PYTHONPATH": "/plugin"}
    both = with_plugin({"PYTHONPATH": "/x:/y", "VLLM_PLUGINS": "a,kvscope"}, folder)
    assert both == {"PYTHONPATH": "/plugin:/x:/y", "VLLM_PLUGINS": "a,kvscope"}
    assert with_plugin({"VLLM_PLUGINS": "a"}, folder)["VLLM_PLUGINS"] == "a,kvscope"
    assert with_plugin({"VLLM_PLUGINS": ""}, folder)["VLLM_PLUGINS"] == "kvscope"


def test_a_folder_that_pythonpath_would_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match="PYTHONPATH would be split at the ':' in it"):
        write_plugin_folder(tmp_path / "a:b" / "plugin")
    assert list(tmp_path.iterdir()) == []
