"""The fuzzer finds what a parser must not do."""

import contextlib
import json
import mmap
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from tools.fuzz import run as run_module
from tools.fuzz import target as target_module
from tools.fuzz.inputs import MAX_BYTES, inputs
from tools.fuzz.run import FindingError, feeding
from tools.fuzz.target import Codec, Parse, Target

MakeTarget = Callable[[Parse], Target]
many = settings(max_examples=300, database=None, derandomize=True)


@pytest.fixture
def make_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeTarget:
    """Targets with a corpus of their own."""
    monkeypatch.setattr(target_module, "CORPUS", tmp_path)
    (tmp_path / "numbers").mkdir()
    (tmp_path / "numbers" / "one").write_bytes(b"[1, 2, 3]")
    codec = Codec(decode=json.loads, encode=lambda value: json.dumps(value).encode())

    def make(parse: Parse) -> Target:
        return Target(
            name="numbers", opened=lambda: contextlib.nullcontext(parse), codec=codec, tokens=()
        )

    return make


def feed(target: Target) -> set[bool]:
    """The answers to 300 inputs."""
    with feeding(target) as feeder:

        @many
        @given(inputs(target))
        def feed_one(content: bytes) -> None:
            feeder.feed(content)

        feed_one()
        return feeder.answers


def accepts_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


@pytest.mark.nightly
def test_a_parser_that_accepts_or_refuses_everything_has_no_finding(
    make_target: MakeTarget,
) -> None:
    assert feed(make_target(accepts_json)) == {True, False}


def test_inputs_that_are_all_refused_show_nothing_and_are_a_finding(
    make_target: MakeTarget,
) -> None:
    with pytest.raises(FindingError, match=r"all 3\d\d inputs were answered {False}"):
        feed(make_target(lambda content: False))


@pytest.mark.nightly
def test_inputs_are_of_the_format_and_not(make_target: MakeTarget) -> None:
    seen: list[bytes] = []
    with pytest.raises(FindingError):
        feed(make_target(lambda content: bool(seen.append(content))))
    well_formed = sum(map(accepts_json, seen))
    assert len(seen) / 4 < well_formed < len(seen) * 3 / 4
    assert len(set(seen)) > len(seen) / 2
    assert max(map(len, seen)) <= MAX_BYTES


def test_an_error_that_is_not_declared_is_found_by_its_smallest_input(
    make_target: MakeTarget,
) -> None:
    def parse(content: bytes) -> bool:
        return (
            accepts_json(content) and len(json.loads(content)) > 0
        )  # not every value has a length

    with pytest.raises(TypeError, match="has no len") as raised:
        feed(make_target(parse))
    (shown,) = re.findall(r"content=(.*),", "\n".join(raised.value.__notes__))
    assert len(shown) < 10, shown


def test_an_input_that_takes_for_ever_is_given_up(
    make_target: MakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "STOP_SECONDS", 0.1)

    def parse(content: bytes) -> bool:
        while True:
            continue

    with feeding(make_target(parse)) as feeder, pytest.raises(FindingError, match="given up after"):
        feeder.feed(b"[]")


def test_an_input_that_takes_long_is_a_finding(
    make_target: MakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "INPUT_SECONDS", 0.0)
    with feeding(make_target(accepts_json)) as feeder, pytest.raises(FindingError, match="limit 0"):
        feeder.feed(b"[]")


def taken(size: int) -> mmap.mmap:
    """Memory of the system's, written: never what this process has freed before."""
    memory = mmap.mmap(-1, size)
    memory.write(bytes(size))
    return memory


@pytest.mark.nightly
@pytest.mark.parametrize("before_mib", [0, 512])
def test_memory_that_grows_is_a_finding_whatever_the_process_took_before(
    before_mib: int, make_target: MakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "GROWTH_MIB", 16)
    if before_mib:
        taken(before_mib << 20).close()
    kept: list[mmap.mmap] = []

    def parse(content: bytes) -> bool:
        kept.append(taken(1 << 20))
        return accepts_json(content)

    with pytest.raises(FindingError, match="memory grew"):
        feed(make_target(parse))


@pytest.mark.nightly
def test_memory_that_is_given_back_is_no_finding(
    make_target: MakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "GROWTH_MIB", 48)

    def parse(content: bytes) -> bool:
        taken(1 << 20).close()
        return accepts_json(content)

    assert feed(make_target(parse)) == {True, False}
