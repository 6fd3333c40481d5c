"""The reference of all commands, written from their own declarations."""

import re
from collections.abc import Iterable

import typer

from kvscope.cli.app import every_command
from kvscope.cli.command import Daemon, record

_HEAD = """\
# Commands

Written by `make docs` from the commands themselves; `kvscope COMMAND --help` prints the same.

Every option of `run`, `sidecar`, `fleet`, `demo` and `engine serve` can be set by a variable, which
has the words of the command in it: `--port` of `sidecar` by `KVSCOPE_SIDECAR_PORT`, that of
`engine serve` by `KVSCOPE_ENGINE_SERVE_PORT`. A flag wins. [Environment](environment.md) lists all
variables. `demo` and `engine serve` need the packages of the engine; the other commands run without
torch.

Exit codes: 0 for success, 1 for a negative result, 2 for a value, file or address that cannot be
used (one line says which and why), 130 after Ctrl-C. Commands that Ctrl-C ends in order (`sidecar`,
`fleet`, `demo`, `engine serve`, `rec save`, `rec play --port`) exit with 0. `kvscope run` exits
with the exit code of its command.
"""
_EXTRA = re.compile(r"\s*\[([^\[\]]*)\]$")


def commands_page() -> str:
    commands = every_command()
    table = "".join(
        f"| [`kvscope {name}`](#{anchor_of(name)}) | {_first_line(command)} |\n"
        for name, command in commands.items()
    )
    sections = "".join(_section(name, command) for name, command in commands.items())
    return f"{_HEAD}\n| command | does |\n|---|---|\n{table}{sections}"


def options_by_variable() -> dict[str, tuple[str, str]]:
    """The flag and the command of each variable."""
    found: dict[str, tuple[str, str]] = {}
    for name, command in every_command().items():
        for option in _options(command):
            if option.envvar is not None:
                found[str(option.envvar)] = _flag(option), name
    return found


def anchor_of(name: str) -> str:
    """The anchor of a command's section on the page of all commands."""
    return f"kvscope-{name}".replace(" ", "-")


def _first_line(command: typer.core.TyperCommand) -> str:
    return (command.help or "").partition("\n")[0]


def _options(command: typer.core.TyperCommand) -> Iterable[typer.core.TyperOption]:
    return (p for p in command.params if isinstance(p, typer.core.TyperOption) and not p.hidden)


def _flag(option: typer.core.TyperOption) -> str:
    return next(flag for flag in option.opts if flag.startswith("--"))


def _section(name: str, command: typer.core.TyperCommand) -> str:
    context = typer.Context(command, info_name=f"kvscope {name}")
    for option in _options(command):
        option.show_envvar = False
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    text = "\n\n".join(_paragraph(part) for part in (command.help or "").split("\n\n"))
    parts = [f"\n## kvscope {name}\n\n```\n{usage}\n```\n\n{text}\n"]
    arguments = [p for p in command.params if isinstance(p, typer.core.TyperArgument)]
    if rows := [_row(record(a, context)) for a in arguments if not a.hidden]:
        parts.append("\n| argument | default | meaning |\n|---|---|---|\n" + "".join(rows))
    if rows := [_row(record(o, context), _variable(command, o)) for o in _options(command)]:
        parts.append("\n| option | default | meaning |\n|---|---|---|\n" + "".join(rows))
    return "".join(parts)


def _paragraph(text: str) -> str:
    """An example is a command: it stands in a block of its own."""
    text = " ".join(text.split())
    label, colon, command = text.partition(": ")
    if colon and label.lower().startswith("example"):
        return f"```\n{command}\n```"
    return _escaped(text)


def _variable(command: typer.core.TyperCommand, option: typer.core.TyperOption) -> str:
    """Named where it does not follow from command and flag."""
    if isinstance(command, Daemon) or option.envvar is None:
        return ""
    return f" Variable: `{option.envvar}`."


def _row(record: tuple[str, str] | None, more: str = "") -> str:
    flags, text = record or ("", "")
    default, text = _default(" ".join(text.split()))
    flags = flags.replace("  ", " ").replace("|", "\\|")
    return f"| `{flags}` | {default} | {_escaped(text)}{more} |\n"


def _default(text: str) -> tuple[str, str]:
    """The text in the brackets at the end: a default, limits, or that it is required."""
    found = _EXTRA.search(text)
    if found is None:
        return "", text
    parts = [part.strip() for part in found[1].split("; ")]
    shown = []
    for part in parts:
        key, _, value = part.partition(": ")
        shown.append(f"`{value}`" if key == "default" else _escaped(part))
    return ", ".join(shown), text[: found.start()]


def _escaped(text: str) -> str:
    """A cell shows names with underscores, stars and angles as they are."""
    return re.sub(r"([*_<>|\[\]])", r"\\\1", text)
