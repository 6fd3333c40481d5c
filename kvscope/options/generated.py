"""Options of commands from the fields of configurations, as `engine/kvscope_engine/option.py`
declares them."""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from kvscope.options.duration import duration
from kvscope.options.duration import shown as in_units
from kvscope.output import fail
from kvscope_engine.option import Setting, built, settings

DURATION = "DURATION"
"""The metavar of a number of seconds that may be written as 90s, 10m or 2h."""
_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with each configuration parameter replaced by that configuration's options.

    The parameter's default is a configuration: its values are those of the options. If the
    configuration refuses a value, the command exits with the reason.
    """
    hints = get_type_hints(command, include_extras=True)
    configurations: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            configurations[parameter.name] = parameter.default
            parameters += [_parameter(setting) for setting in settings(parameter.default)]
        else:
            parameters.append(parameter.replace(annotation=kind))

    @wraps(command)
    def run(**given: Any) -> None:
        try:
            for name, default in configurations.items():
                own = {each.name: _value(each, given.pop(each.name)) for each in settings(default)}
                given[name] = built(default, own)
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
    if setting.kind in (bool, bool | None) and not shown.flags:
        flags = (f"{flags[0]}/--no-{flags[0].removeprefix('--')}",)
    kind, default = setting.kind, setting.default
    is_duration = shown.metavar == DURATION and kind is not str
    stated = f"  [default: {in_units(default)}]" if is_duration and default else ""
    option: Any = typer.Option(
        *flags,
        metavar=shown.metavar,
        min=None if is_duration else shown.least,
        max=None if is_duration else shown.most,
        parser=duration(shown.least, shown.most) if is_duration else None,
        show_default=not is_duration,
        help=f"{shown.help}{stated}",
        rich_help_panel=setting.panel or None,
    )
    if _is_repeated(setting):
        kind, default = list[get_args(kind)[0]] | None, list(default) or None  # type: ignore[misc]
    annotation: Any = Annotated[kind, option]
    return inspect.Parameter(setting.name, _KIND, default=default, annotation=annotation)


def _is_repeated(setting: Setting) -> bool:
    """Whether the option may be given several times: its field is a tuple."""
    return get_origin(setting.kind) is tuple


def _value(setting: Setting, given: Any) -> Any:
    return tuple(given or ()) if _is_repeated(setting) else given
