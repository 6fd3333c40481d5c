"""Options as fields of a configuration: declared once, for everything that shows or sets them.

Command line, environment variables and the table in docs/reference/engine.md follow from them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple, TypeVar, cast, get_type_hints

T = TypeVar("T")
Config = TypeVar("Config")
_KEY = "option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Presentation of a field; defaults follow from the field itself."""

    help: str
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    """Flags, the first of which names it everywhere; empty: from the field's name, with --no- for a
    bool."""
    least: float | None = None
    most: float | None = None
    unset: str = ""
    """Meaning of a default of None, as the table shows it."""


def option(
    default: T,
    help: str,
    metavar: str | None = None,
    *,
    flags: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
    unset: str = "",
    is_secret: bool = False,
) -> T:
    """A dataclass field that is an option, with these properties of `Option`.

    is_secret: left out of the configuration's repr.
    """
    shown = Option(
        help=help,
        metavar=metavar,
        flags=flags,
        least=least,
        most=most,
        unset=unset,
    )
    return field(default=default, metadata={_KEY: shown}, repr=not is_secret)


class Setting(NamedTuple):
    """An option of a configuration, and the field that holds its value."""

    name: str
    """Name as a parameter: max_num_seqs for --max-num-seqs."""
    flags: tuple[str, ...]
    kind: Any
    default: Any
    option: Option
    panel: str
    """Title over it in the help: the `PANEL` of its dataclass, or of the one that holds that."""
    path: tuple[str, ...]
    """Names of the fields that lead to it: ("swap", "space_gib")."""


def settings(config: Any) -> tuple[Setting, ...]:
    """The options of a configuration and of its parts, in the order of their fields.

    Their defaults are the values that it has.
    """
    return tuple(_settings(config, (), ""))


def built(config: Config, values: Mapping[str, Any]) -> Config:
    """The configuration with these values of its settings, by name. Raises ValueError as it does.

    Fields that are no options stay as they are.
    """
    return cast(Config, _built(config, {s.path: values[s.name] for s in settings(config)}, ()))


def _settings(config: Any, above: tuple[str, ...], panel: str) -> Iterator[Setting]:
    panel = getattr(type(config), "PANEL", panel)
    hints = get_type_hints(type(config))
    for each in fields(config):
        value, path = getattr(config, each.name), (*above, each.name)
        shown: Option | None = each.metadata.get(_KEY)
        if shown is not None:
            flags = shown.flags or (f"--{each.name.replace('_', '-')}",)
            name = flags[0].removeprefix("--").replace("-", "_")
            yield Setting(name, flags, hints[each.name], value, shown, panel, path)
        elif is_dataclass(value):
            yield from _settings(value, path, panel)


def _built(config: Any, values: Mapping[tuple[str, ...], Any], above: tuple[str, ...]) -> Any:
    given = {}
    for each in fields(config):
        value, path = getattr(config, each.name), (*above, each.name)
        if path in values:
            given[each.name] = values[path]
        else:
            given[each.name] = _built(value, values, path) if is_dataclass(value) else value
    return type(config)(**given)
