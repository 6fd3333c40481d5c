"""The model of a command: `kvscope engine serve X` means `--model X`."""

from typing import Annotated

import typer

Checkpoint = Annotated[str | None, typer.Argument(metavar="MODEL", help="The same as --model.")]


def chosen_model(context: typer.Context, argument: str | None, option: str | None) -> str | None:
    """The argument, else the option. Raises ValueError if the command line has two models.

    An argument takes precedence over the option's environment variable.
    """
    if argument is None:
        return option
    source = context.get_parameter_source("model")
    if source is not None and source.name == "COMMANDLINE" and option != argument:
        raise ValueError(f"two models, {argument} and --model {option}: give one")
    return argument
