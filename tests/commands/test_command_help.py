"""The output of --help, and the variables that set options."""

import pytest
import typer
from typer.core import TyperGroup, TyperOption
from typer.testing import CliRunner

from kvscope.cli.app import app

ROOT = typer.main.get_command(app)
assert isinstance(ROOT, TyperGroup)
COMMANDS = ROOT.commands


def help_of(*command: str) -> str:
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.output


def test_no_description_is_cut_off_in_80_columns() -> None:
    text = help_of()
    assert "..." not in text.split("Commands:")[1]
    for name in COMMANDS:
        assert f"  {name}  " in text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_rule_for_variables_is_explained_once_in_each_help(name: str) -> None:
    text = help_of(name)
    assert text.count("can be set by a variable: --") == 1
    # Only the exceptions of the rule are named with their options.
    assert text.count("[env var: ") == (1 if name == "load" else 0)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_variable_is_named_after_its_flag(name: str) -> None:
    for option in COMMANDS[name].params:
        if isinstance(option, TyperOption) and (name, option.name) != ("load", "url"):
            flags = [flag for flag in option.opts if flag.startswith("--")]
            assert option.envvar == "KVSCOPE_" + flags[0][2:].replace("-", "_").upper()


def test_the_address_for_load_is_not_the_page_that_a_sidecar_reads() -> None:
    environment = {"KVSCOPE_URL": "page=http://127.0.0.1:1", "KVSCOPE_LOAD_URL": "ftp://nowhere"}
    result = CliRunner().invoke(app, ["load", "chat"], env=environment)
    assert result.exit_code == 2
    assert "ftp://nowhere" in result.output


def test_a_variable_with_a_bad_value_is_named() -> None:
    result = CliRunner().invoke(app, ["sidecar"], env={"KVSCOPE_PORT": "80a0"})
    assert result.exit_code == 2
    assert "env var: 'KVSCOPE_PORT'" in result.output
