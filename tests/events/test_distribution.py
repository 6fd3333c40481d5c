"""kvscope-events by itself: installs alone, on every Python it names, and is quick to import."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.checkout import ROOT, project_files

pytestmark = pytest.mark.nightly

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
IMPORT_SECONDS = 0.1
FOREIGN = {"msgspec", "kvscope_events"}
WITHIN_RAY = "kvscope_events.observers.ray_serve"
"""Extends a class of Ray's, which loads it."""
ALL = (
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in project_files()
    if path.suffix == ".py" and path.relative_to(ROOT).parts[0] == "kvscope_events"
)
MODULES = sorted(name for name in ALL if name != WITHIN_RAY)
IMPORT_ALL = f"""
import importlib, json, sys, time
before, began = set(sys.modules), time.process_time()
for name in {MODULES!r}:
    importlib.import_module(name)
spent = time.process_time() - began
files = {{name: getattr(sys.modules[name], "__file__", None) for name in {MODULES!r}}}
loaded = {{name.split(".")[0] for name in set(sys.modules) - before}} - sys.stdlib_module_names
print(json.dumps([spent, sorted(loaded), files]))
"""
YARDSTICK = """
import time
began = time.process_time()
import asyncio, email.message, http.client, xml.etree.ElementTree
print(time.process_time() - began)
"""
TRAVEL = """
import sys
from kvscope_events.bus import EventBus
from kvscope_events.events import Hello
from kvscope_events.wire.publisher import WirePublisher
from kvscope_events.wire.subscriber import WireSubscriber
bus = EventBus()
publisher = WirePublisher(bus, f"ipc://{sys.argv[1]}/a.sock")
publisher.start()
bus.emit(Hello(1, "s", "kvscope", "0", "m", "0", 1, True, []))
bus.flush()
reader = WireSubscriber(publisher.address)
assert reader.wait(10), "nothing came"
print(reader.take().batch.events[0].model_name, reader.state_known)
reader.close()
publisher.stop()
"""


def interpreter(version: str) -> str | None:
    """An interpreter of that version: on PATH, or one of pyenv's."""
    found = shutil.which(f"python{version}")
    if found is not None and _runs(found, version):
        return found
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = sorted(root.glob(f"versions/{version}.*/bin/python"))
    return next((str(path) for path in candidates if _runs(str(path), version)), None)


def _runs(python: str, version: str) -> bool:
    code = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    ran = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return ran.stdout.strip() == version


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution, built once for every interpreter."""
    folder = tmp_path_factory.mktemp("wheel")
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT / "kvscope_events"))
    (built,) = folder.glob("kvscope_events-*-py3-none-any.whl")
    return built


OLDEST, *LATER = VERSIONS


@pytest.fixture(
    scope="module",
    params=[OLDEST, *(pytest.param(version, marks=pytest.mark.nightly) for version in LATER)],
)
def alone(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The interpreter of a venv that holds kvscope-events and what it needs."""
    found = interpreter(request.param)
    if found is None:
        pytest.skip(f"no Python {request.param}")
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([found, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    _pip("--python", str(python), "install", "--no-compile", str(wheel))
    # Its own pip would have compiled what it installs.
    subprocess.run([str(python), "-m", "compileall", "-q", str(folder / "lib")], check=True)
    return python


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_every_module_is_imported_quickly_and_loads_nothing_foreign(
    alone: Path, tmp_path: Path
) -> None:
    measured, yardsticks = [], []
    for _ in range(7):
        ran = subprocess.run(
            [str(alone), "-c", IMPORT_ALL], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        spent, loaded, files = json.loads(ran.stdout)
        ran = subprocess.run(
            [str(alone), "-c", YARDSTICK], capture_output=True, text=True, check=True
        )
        yardsticks.append(float(ran.stdout))
        measured.append(spent)
        assert set(loaded) <= FOREIGN
        assert all(Path(file).is_relative_to(alone.parents[1]) for file in files.values())
    # CPU time, and the least of it: other programs on the machine must not matter. A slow machine
    # needs longer for the standard library, too.
    assert min(measured) < max(IMPORT_SECONDS, 1.5 * min(yardsticks)), (measured, yardsticks)


@pytest.mark.slow
def test_a_batch_travels(alone: Path, tmp_path: Path) -> None:
    command = [str(alone), "-W", "error", "-c", TRAVEL, str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("m True\n", "")


@pytest.mark.slow
def test_the_types_are_shipped(alone: Path) -> None:
    (site,) = (alone.parents[1] / "lib").glob("python*/site-packages/kvscope_events")
    assert (site / "py.typed").is_file()
    assert not (site / "pyproject.toml").exists()


def test_importing_the_package_imports_none_of_its_modules() -> None:
    code = (
        "import sys, kvscope_events, kvscope_events.wire\n"
        "print([n for n in sys.modules if n.startswith(('kvscope_events.', 'zmq', 'msgspec'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout == "['kvscope_events.wire']\n"
