"""The output of --help, and the variables that set options."""

import pytest
from typer.core import TyperOption
from typer.testing import CliRunner

from kvscope.cli.app import app, every_command

COMMANDS = every_command()
DAEMONS = ("run", "engine serve", "sidecar", "fleet", "demo", "webhook")


def help_of(*command: str) -> str:
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.output


def test_no_description_is_cut_off_in_80_columns() -> None:
    listed = ""
    for group in {"", *(name.partition(" ")[0] for name in COMMANDS if " " in name)}:
        text = help_of(*group.split()).split("Commands:")[1]
        assert "..." not in text
        listed += text
    for name in COMMANDS:
        assert f"  {name.split()[-1]}  " in listed


@pytest.mark.parametrize("name", COMMANDS)
def test_the_rule_for_variables_is_explained_once_in_the_help_of_a_daemon(name: str) -> None:
    text = help_of(*name.split())
    assert text.count("can be set by a variable: --") == (name in DAEMONS)
    assert "[env var: " not in text


@pytest.mark.parametrize("name", COMMANDS)
def test_a_variable_is_named_after_its_command_and_only_daemons_have_some(name: str) -> None:
    for option in COMMANDS[name].params:
        if isinstance(option, TyperOption):
            flag = next(flag for flag in option.opts if flag.startswith("--"))
            named = f"KVSCOPE_{name}_{flag[2:]}".replace("-", "_").replace(" ", "_").upper()
            assert option.envvar == (named if name in DAEMONS else None)


def test_no_variable_sets_options_of_two_commands() -> None:
    named = [
        option.envvar
        for command in COMMANDS.values()
        for option in command.params
        if isinstance(option, TyperOption) and option.envvar is not None
    ]
    assert len(named) == len(set(named)) > 100


def test_a_variable_of_a_daemon_changes_no_other_command() -> None:
    environment = {"KVSCOPE_SIDECAR_GPU": "false", "KVSCOPE_GPU": "false", "KVSCOPE_TARGET": "x"}
    result = CliRunner().invoke(app, ["plan", "--params", "8e9"], env=environment)
    assert "no GPU" not in result.output


def test_a_variable_without_the_commands_name_is_not_read_and_said_to_be() -> None:
    arguments = ["sidecar", "--check", "--url", "http://127.0.0.1:1"]
    result = CliRunner().invoke(app, arguments, env={"KVSCOPE_PORT": "80a0"})
    assert (result.exit_code, result.output.splitlines()[0]) == (
        0,
        "kvscope: KVSCOPE_PORT is not read: the variable of kvscope sidecar is "
        "KVSCOPE_SIDECAR_PORT",
    )


def test_a_variable_with_a_bad_value_is_named() -> None:
    result = CliRunner().invoke(app, ["sidecar"], env={"KVSCOPE_SIDECAR_PORT": "80a0"})
    assert result.exit_code == 2
    assert "or KVSCOPE_SIDECAR_PORT" in result.output


@pytest.mark.parametrize(
    "line",
    ["tpo", "sidecar --port 80a0", "why --nope", "plan --gpu", "rec export", "alerts no", "gpu no"],
)
def test_a_line_that_cannot_be_parsed_is_refused_in_one_line(line: str) -> None:
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 2
    assert result.output.startswith("kvscope: ")
    assert result.output.count("\n") == 1
