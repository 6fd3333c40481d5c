"""A command and a group: their help, their errors in one line, the variables of their options."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from kvscope.output import fail

PREFIX = "KVSCOPE_"

MOVED = {
    "record": "rec save",
    "replay": "rec play",
    "export": "rec export",
    "serve": "engine serve",
    "stacks": "observer stacks",
    "retire": "admin forget",
    "gpu": "admin gpu-release",
    "metrics": "docs metrics",
}
"""The present words of commands that had other names."""
_PLAIN = (
    ("Input should be less than or equal to", "must be at most"),
    ("Input should be greater than or equal to", "must be at least"),
    ("Input should be (less|greater) than", r"must be \1 than"),
    ("Input should be a valid integer, unable to parse string as an integer", "not a whole number"),
    ("Input should be a valid (integer|number).*?(?= \\(|$)", r"not a valid \1"),
    ("Value error, ", ""),
    (r" \(env var: '(\w+)'\)", r" (or \1)"),
    (r"\.$", ""),
)
"""Phrases of the library that checks values, and ours."""
_KINDS = (
    *(("float range", "NUMBER"), ("float", "NUMBER"), ("int range", "N"), ("int", "N")),
    *(("str", "TEXT"), ("path", "PATH"), ("file", "FILE")),
)


_UsageError: Any = typer.BadParameter.__base__  # which typer does not export


class Group(TyperGroup):
    """Refuses a line that cannot be parsed in one line, as everything else is refused."""

    def make_context(self, info_name: Any, args: Any, *rest: Any, **more: Any) -> Any:
        if not args:  # prints the help
            return super().make_context(info_name, args, *rest, **more)
        with _one_line():
            return super().make_context(info_name, args, *rest, **more)

    def invoke(self, ctx: Any) -> Any:
        with _one_line():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if ctx.parent is None and args[0] in MOVED:
            raise fail(f"`kvscope {args[0]}` is now `kvscope {MOVED[args[0]]}`")
        return super().resolve_command(ctx, args)


@contextmanager
def _one_line() -> Iterator[None]:
    """Raises typer.Exit(2) instead of an error of the command line."""
    try:
        yield
    except _UsageError as error:
        path = "kvscope" if error.ctx is None else error.ctx.command_path
        message = " ".join(error.format_message().split())
        for pattern, plain in _PLAIN:
            message = re.sub(pattern, plain, message)
        raise fail(f"{message} (see {path} --help)") from None


class Command(TyperCommand):
    """Shows its arguments without types, and its options under the titles of their parts."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [each for each in self.params if isinstance(each, TyperArgument)]
        return ["[OPTIONS]", *(_usage_of(each) for each in arguments if not each.hidden)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parts: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            if (row := record(each, ctx)) is not None:
                title = "Arguments" if isinstance(each, TyperArgument) else "Options"
                parts.setdefault(getattr(each, "rich_help_panel", None) or title, []).append(row)
        for title in sorted(parts, key=lambda name: (name != "Arguments", name != "Options")):
            with formatter.section(title):
                formatter.write_dl(parts[title])


def _usage_of(argument: TyperArgument) -> str:
    name = _word_of(argument)
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _word_of(argument: TyperArgument) -> str:
    name = argument.metavar or str(argument.name).upper()
    return name if argument.nargs == 1 or name[-1] in ".]" else f"{name}..."


def record(parameter: Any, ctx: Any) -> tuple[str, str] | None:
    """Its flags with their value, and its text, for help and reference; None: hidden."""
    found = parameter.get_help_record(ctx)
    if found is None:
        return None
    name, text = found
    if isinstance(parameter, TyperArgument):
        return _word_of(parameter), _limits(text)
    for kind, shown in _KINDS:
        name = name.replace(f"<{kind}>", shown)
    return re.sub(r"<(.+)>", r"\1", name), _limits(text)


def _limits(text: str) -> str:
    head, bracket, extra = text.rpartition("  [")
    extra = extra.replace("<=x<=", " to ").replace("x>=", "at least ").replace("x<=", "at most ")
    return f"{head}{bracket}{extra}" if bracket else text


class Daemon(Command):
    """A command that serves until it is ended: variables set its options, and flags win over them.

    Each has the command's words in it, so no variable of one command changes another.
    """

    path = ""
    """The words of the command behind `kvscope`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settable = [option for option in self.params if isinstance(option, TyperOption)]
        for option in self._settable:
            option.envvar = f"{PREFIX}{self.path}_{_name_of(option)}".replace(" ", "_").upper()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option in self._settable:
            name = f"{PREFIX}{_name_of(option)}".upper()
            if os.environ.get(name) and not ctx.resilient_parsing:
                typer.echo(
                    f"kvscope: {name} is not read: the variable of kvscope {self.path} is "
                    f"{option.envvar}",
                    err=True,
                )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The rule is explained once, instead of a variable with each option."""
        for option in self._settable:
            option.show_envvar = False
        super().format_options(ctx, formatter)
        for option in self._settable:
            option.show_envvar = True

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        first = self._settable[0]
        formatter.write_paragraph()
        formatter.write_text(
            f"Each option can be set by a variable: {first.opts[0]} by {first.envvar}."
        )


def _name_of(option: TyperOption) -> str:
    """max_num_seqs for --max-num-seqs: the first long one of an option's flags."""
    flag = next(flag for flag in option.opts if flag.startswith("--"))
    return flag.removeprefix("--").replace("-", "_")
