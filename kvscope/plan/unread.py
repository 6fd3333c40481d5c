"""Fields of a configuration that can change sizes and that nothing here has read.

A plan that passes over one is not called exact: the next model's new field is then seen, not lost.
unread.toml has the fields that need not be read.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

_MOST = 12
"""Names in one answer."""
_FIELDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
_HARMLESS = re.compile("|".join(_FIELDS["harmless"]))
_OF_WEIGHTS = re.compile("|".join(_FIELDS["of_weights"]))


def unread(
    config: Mapping[str, object], read: Collection[str], *, counted: bool
) -> tuple[str, ...]:
    """Names in `config`, the decoder's, that were not read though they can change sizes, sorted.

    counted: the weights were counted from it as well.
    """
    found = []
    for name, value in config.items():
        inner = any(each.startswith(f"{name}.") for each in read)
        parts = (
            {f"{name}.{key}": part for key, part in value.items()}
            if (inner and isinstance(value, Mapping))
            else {name: value}
        )
        found += [
            full
            for full, part in parts.items()
            if full not in read
            and _matters(full, part)
            and not _known(full, counted)
            and not any(
                other in read and other in config for other in _FIELDS["said_by"].get(full, ())
            )
        ]
    return tuple(sorted(found)[:_MOST])


def _known(name: str, counted: bool) -> bool:
    last = name.rsplit(".", 1)[-1]
    return bool(_HARMLESS.fullmatch(last)) or (not counted and bool(_OF_WEIGHTS.fullmatch(last)))


def _matters(name: str, value: object) -> bool:
    """Nothing, zero, a fraction and a name are no sizes; a text that lists layers is one."""
    if isinstance(value, str):
        return "pattern" in name or "layers" in name
    if isinstance(value, float):
        return value.is_integer() and value > 1
    if isinstance(value, list):
        return any(item != 1 for item in value)
    return bool(value)
