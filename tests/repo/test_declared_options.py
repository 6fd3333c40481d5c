"""One way to declare an option: a field of a dataclass, from which flag and variable follow."""

import re

from kvscope.cli.app import every_command
from tests.repo.checkout import python_files, relative

MOST = 5
"""Options that a command may declare as its own parameters. One with more has a dataclass."""
ALIASES = {"kvscope/answer_document.py": 1, "kvscope/output.py": 1}
"""Options declared outside of the command's file, without a dataclass, and how many."""
_OPTION = re.compile(r"\btyper\.Option\(")


def test_a_command_with_many_options_has_them_in_a_dataclass() -> None:
    found = {
        relative(path): len(_OPTION.findall(path.read_text()))
        for path in python_files("kvscope/cli")
    }
    many = {name: count for name, count in found.items() if count > MOST}
    assert not many, "move them into a dataclass, as in kvscope/cli/sidecar.py"


def test_no_option_is_declared_away_from_its_command() -> None:
    files = {
        relative(path): len(_OPTION.findall(path.read_text())) for path in python_files("kvscope")
    }
    elsewhere = {
        name: count
        for name, count in files.items()
        if count and not name.startswith("kvscope/cli/") and name != "kvscope/options/generated.py"
    }
    assert elsewhere == ALIASES


def test_no_command_has_a_flag_twice() -> None:
    for name, command in every_command().items():
        flags = [flag for each in command.params for flag in (*each.opts, *each.secondary_opts)]
        assert len(flags) == len(set(flags)), name
