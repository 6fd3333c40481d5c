"""`serve` and `plan` agree on what names a checkpoint here and what names one on the hub."""

from pathlib import Path

import pytest

from kvscope_engine.sizing.config_json import local_path


@pytest.mark.parametrize("name", ["gpt2", "Qwen/Qwen3-0.6B"])
def test_up_to_one_slash_is_a_name_on_the_hub(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_path(name) is None
    (tmp_path / name).mkdir(parents=True)
    assert local_path(name) == Path(name), "what is there is meant"


@pytest.mark.parametrize("name", ["/models/absent", "./absent", "../absent", "a/b/c", "."])
def test_what_can_be_no_hub_name_is_a_path_though_nothing_is_there(name: str) -> None:
    assert local_path(name) == Path(name)


def test_the_home_folder_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_path("~/model") == tmp_path / "model"


@pytest.mark.parametrize("name", ["x" * 300, f"someone/{'x' * 300}"])
def test_what_is_too_long_for_a_file_is_a_name_on_the_hub(name: str) -> None:
    assert local_path(name) is None


def test_the_home_folder_of_nobody_is_a_path() -> None:
    assert local_path("~nobody-of-that-name/model") == Path("~nobody-of-that-name/model")
