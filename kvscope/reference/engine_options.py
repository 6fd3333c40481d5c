"""The table of the engine's options in docs/reference/engine.md, from its configuration."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

from kvscope_engine.config import EngineConfig
from kvscope_engine.option import Setting, settings

PAGE = Path("docs") / "reference" / "engine.md"
_FLAG = re.compile(r"--[a-z][a-z-]+")
_BEGIN = "<!-- engine options: written by `make docs` from engine/kvscope_engine/config.py -->\n"
_END = "<!-- end of the engine options -->\n"


def with_table(page: str) -> str:
    """The page with the current table. Raises ValueError if it has no place for one."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{PAGE}: the lines {_BEGIN.strip()} and {_END.strip()} are missing")
    return "".join((before, begin, *_table(), end, after))


def _table() -> Iterator[str]:
    yield "\n| flag | default | what |\n|---|---|---|\n"
    for setting in settings(EngineConfig()):
        cells = (_flags(setting), _default(setting), _help(setting))
        shown = (_FLAG.sub(r"`\g<0>`", cell) for cell in cells)
        yield f"| {' | '.join(shown)} |\n"
    yield "\n"


def _flags(setting: Setting) -> str:
    flags = setting.flags
    if setting.kind is bool:
        flags = (*flags, f"--no-{flags[0].removeprefix('--')}")
    return ", ".join(flags)


def _help(setting: Setting) -> str:
    """Its text, after the values if they are few."""
    if get_origin(setting.kind) is not Literal:
        return setting.option.help
    values = ", ".join(f"`{value}`" for value in get_args(setting.kind))
    return f"{values}. {setting.option.help}"


def _default(setting: Setting) -> str:
    value = setting.default
    if value is None:
        return setting.option.unset
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, int | float) else f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
