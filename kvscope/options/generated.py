"""Options of commands from the fields of configurations, as `engine/kvscope_engine/option.py`
declares them."""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from kvscope.output import fail
from kvscope_engine.option import Setting, built, settings

_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with each configuration parameter replaced by that configuration's options.

    If the configuration refuses a value, the command exits with the reason.
    """
    hints = get_type_hints(command, include_extras=True)
    configurations: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            assert isinstance(kind, type)
            configurations[parameter.name] = kind
            parameters += [_parameter(setting) for setting in settings(kind)]
        else:
            parameters.append(parameter.replace(annotation=kind))

    @wraps(command)
    def run(**given: Any) -> None:
        try:
            for name, kind in configurations.items():
                own = {setting.name: given.pop(setting.name) for setting in settings(kind)}
                given[name] = built(kind, own)
        except ValueError as error:
            raise fail(error) from None
        command(**given)

    del run.__wrapped__  # inspect would follow it to the parameters that were replaced
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameter(setting: Setting) -> inspect.Parameter:
    shown = setting.option
    flags = setting.flags
    if setting.kind is bool and not shown.flags:
        flags = (f"{flags[0]}/--no-{flags[0].removeprefix('--')}",)
    option = typer.Option(
        *flags, metavar=shown.metavar, min=shown.least, max=shown.most, help=shown.help
    )
    annotation: Any = Annotated[setting.kind, option]
    return inspect.Parameter(setting.name, _KIND, default=setting.default, annotation=annotation)
