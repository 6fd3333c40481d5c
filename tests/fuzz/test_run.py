"""The fuzzer finds what a parser must not do, and keeps the input that made it."""

import contextlib
import json
import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.fuzz import run as run_module
from tools.fuzz import target as target_module
from tools.fuzz.run import fuzz
from tools.fuzz.target import Codec, Parse, Target


def make_target(parse: Parse, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target with a corpus of its own."""
    monkeypatch.setattr(target_module, "CORPUS", folder)
    (folder / "numbers").mkdir()
    (folder / "numbers" / "one").write_bytes(b"[1, 2, 3]")

    @contextlib.contextmanager
    def opened() -> Iterator[Parse]:
        yield parse

    codec = Codec(decode=json.loads, encode=lambda value: json.dumps(value).encode())
    return Target(name="numbers", opened=opened, codec=codec)


def takes_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def test_a_parser_that_takes_or_refuses_everything_has_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = fuzz(make_target(takes_json, tmp_path, monkeypatch), 300)
    assert outcome.findings == []
    assert outcome.inputs == 300
    assert 0 < outcome.taken < 300


def test_an_undeclared_error_is_a_finding_whose_input_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(content: bytes) -> bool:
        return bool(json.loads(content)[0])  # refuses nothing as declared

    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setenv(run_module.FOLDER_VARIABLE, str(elsewhere))
    target = make_target(parse, tmp_path, monkeypatch)
    corpus = set((tmp_path / "numbers").iterdir())
    outcome = fuzz(target, 300)
    assert outcome.findings
    assert set((tmp_path / "numbers").iterdir()) == corpus
    found = list((elsewhere / "numbers").iterdir())
    assert found
    assert any(str(found[0]) in finding for finding in outcome.findings)


def test_an_input_that_takes_for_ever_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(run_module, "INPUT_SECONDS", 0.1)

    def parse(content: bytes) -> bool:
        while True:
            continue

    outcome = fuzz(make_target(parse, tmp_path, monkeypatch), 300)
    assert len(outcome.findings) == run_module.MAX_FINDINGS
    assert "processor time" in outcome.findings[0]


def taken(size: int) -> mmap.mmap:
    """Memory of the system's, written: never what this process has freed before."""
    memory = mmap.mmap(-1, size)
    memory.write(bytes(size))
    return memory


@pytest.mark.parametrize("before_mib", [0, 512])
def test_memory_that_grows_is_a_finding_whatever_the_process_took_before(
    before_mib: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "GROWTH_MIB", 16)
    if before_mib:
        taken(before_mib << 20).close()
    kept: list[mmap.mmap] = []

    def parse(content: bytes) -> bool:
        kept.append(taken(1 << 20))
        return True

    outcome = fuzz(make_target(parse, tmp_path, monkeypatch), 200)
    assert any("memory grew" in finding for finding in outcome.findings)


def test_memory_that_is_given_back_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "GROWTH_MIB", 16)

    def parse(content: bytes) -> bool:
        taken(1 << 20).close()
        return True

    assert fuzz(make_target(parse, tmp_path, monkeypatch), 200).findings == []


def test_the_same_seed_makes_the_same_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []

    def parse(content: bytes) -> bool:
        seen.append(content)
        return True

    target = make_target(parse, tmp_path, monkeypatch)
    for _ in range(2):
        fuzz(target, 100, seed=3)
    assert seen[:100] == seen[100:]
