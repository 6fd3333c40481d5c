"""Options as fields of a configuration: declared once, for everything that shows or sets them.

Command line, environment variables and the table in docs/reference/engine.md follow from them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
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
) -> T:
    """A dataclass field that is an option, with these properties of `Option`."""
    shown = Option(help=help, metavar=metavar, flags=flags, least=least, most=most, unset=unset)
    return field(default=default, metadata={_KEY: shown})


class Setting(NamedTuple):
    """An option of a configuration, and the field that holds its value."""

    name: str
    """Name as a parameter: max_num_seqs for --max-num-seqs."""
    flags: tuple[str, ...]
    kind: Any
    default: Any
    option: Option
    path: tuple[str, ...]
    """Names of the fields that lead to it: ("swap", "space_gib")."""


def settings(config: type) -> tuple[Setting, ...]:
    """The options of a configuration; those of its parts first, in the order of their fields."""
    return tuple(_settings(config, ()))


def built(config: type[Config], values: Mapping[str, Any]) -> Config:
    """The configuration with the values of its settings by name. Raises ValueError as it does."""
    return cast(Config, _built(config, {s.path: values[s.name] for s in settings(config)}, ()))


def _settings(config: type, above: tuple[str, ...]) -> Iterator[Setting]:
    hints = get_type_hints(config)
    own = []
    for each in fields(config):
        kind = hints[each.name]
        if _KEY in each.metadata:
            own.append(_setting(each, kind, (*above, each.name)))
        elif is_dataclass(kind):
            yield from _settings(cast(type, kind), (*above, each.name))
    yield from own


def _setting(each: "Field[Any]", kind: Any, path: tuple[str, ...]) -> Setting:
    shown: Option = each.metadata[_KEY]
    flags = shown.flags or (f"--{each.name.replace('_', '-')}",)
    name = flags[0].removeprefix("--").replace("-", "_")
    assert each.default is not MISSING, f"{each.name} has no default"
    return Setting(name, flags, kind, each.default, shown, path)


def _built(config: type, values: Mapping[tuple[str, ...], Any], above: tuple[str, ...]) -> Any:
    given = {}
    hints = get_type_hints(config)
    for each in fields(config):
        path = (*above, each.name)
        if path in values:
            given[each.name] = values[path]
        elif is_dataclass(hints[each.name]):
            given[each.name] = _built(cast(type, hints[each.name]), values, path)
    return config(**given)
