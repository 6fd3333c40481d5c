"""The name of the model is one that every answer and every metric can carry."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_engine.config import MAX_NAME_CHARACTERS, ModelConfig

SPOILT = {
    "surrogates": "ab\udcff",
    "a line break": "a\nb",
    "a control character": "a\x1b[31mb",
    "a line separator": "a\u2028b",
    "a direction mark": "a\u202eb",
    "no end": "x" * (MAX_NAME_CHARACTERS + 1),
}


@pytest.mark.parametrize("name", SPOILT.values(), ids=SPOILT)
def test_a_served_name_that_cannot_be_printed_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the model's name"):
        ModelConfig(served_model_name=name)


@pytest.mark.parametrize("name", SPOILT.values(), ids=SPOILT)
def test_serve_refuses_such_a_name_in_one_line_before_it_listens(name: str) -> None:
    result = CliRunner().invoke(
        app, ["engine", "serve", "--served-model-name", name, "--port", "0"]
    )
    assert result.exit_code == 2
    assert result.stderr.startswith("kvscope: the model's name ")
    assert len(result.stderr.splitlines()) == 1
    assert "\ufffd" not in result.stderr


def test_a_folder_whose_name_cannot_be_served_can_be_given_another(tmp_path: Path) -> None:
    folder = f"{tmp_path}/{'x' * 300}"
    with pytest.raises(ValueError, match="set --served-model-name"):
        ModelConfig(model=folder)
    assert ModelConfig(model=folder, served_model_name="x").name == "x"


@pytest.mark.parametrize("name", ["gpt2", "Qwen/Qwen3-0.6B", "mon modèle", "模型", "x" * 256])
def test_other_names_are_served(name: str) -> None:
    assert ModelConfig(served_model_name=name).name == name
