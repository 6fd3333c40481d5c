"""The variables by which a server loads the observer, added to those that it has.

Three forms: Kubernetes' list of names and values, Compose's mapping, and its list of NAME=VALUE.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from kvscope.inject.edit import Editor
from kvscope.inject.pod import PLUGIN_FOLDER, VARIABLES
from kvscope.inject.tree import (
    Alias,
    LeftAloneError,
    Node,
    child,
    entry,
    is_list,
    is_mapping,
    is_null,
    mapping,
    plain,
)
from kvscope.run.plugin_folder import PLUGIN, PLUGINS_VARIABLES

_PATH = "PYTHONPATH"
_REFERENCE = f"{PLUGIN_FOLDER}:$({_PATH})"
"""In front of a variable that comes from a ConfigMap; where that has none, Kubernetes leaves a
folder that does not exist."""


@dataclass(frozen=True, slots=True)
class _WrittenVariable:
    """A variable as it is written."""

    scalar: Node | None
    """The node that has its value; None: the value comes from elsewhere."""
    skip: int
    """Characters before the value in the scalar."""
    is_flow: bool

    @property
    def value(self) -> str:
        return "" if self.scalar is None else str(self.scalar.value)[self.skip :]


def as_mapping(environment: Any) -> dict[str, Any]:
    """A service's environment by name, in either form."""
    if not isinstance(environment, list):
        return dict(mapping(environment))
    texts = [str(text).partition("=") for text in environment]
    return {name: value for name, _, value in texts}


def extend_environment(
    server: Node, key: str, edit: Editor, *, may_be_from_elsewhere: bool = False
) -> None:
    """Add the variables at `env` or `environment`. Raises LeftAloneError."""
    inner = child(server, key)
    if inner is not None:
        edit.own(inner)
    written = _written(inner)
    added = dict(VARIABLES)
    if _PATH in written:
        path = written[_PATH]
        if path.scalar is None:
            raise LeftAloneError(f"{_PATH} comes from elsewhere: put {PLUGIN_FOLDER} first there")
        if not path.value:
            raise LeftAloneError(f"{_PATH} is empty: take it out")
        edit.widen(path.scalar, before=f"{PLUGIN_FOLDER}:", skip=path.skip)
        del added[_PATH]
    elif may_be_from_elsewhere:
        added[_PATH] = _REFERENCE
    if key == "env":
        edit.extend(server, key, [{"name": name, "value": text} for name, text in added.items()])
    elif inner is not None and is_list(inner):
        edit.extend(server, key, [f"{name}={text}" for name, text in added.items()])
    else:
        edit.put(server, key, added)
    for name, is_list_when in PLUGINS_VARIABLES.items():
        if name in written:
            _allow(name, written[name], edit, may_be_empty=is_list_when.startswith(":"))


def _allow(name: str, variable: _WrittenVariable, edit: Editor, may_be_empty: bool) -> None:
    """Add our plugin to those that may be loaded. Raises LeftAloneError."""
    if variable.scalar is None:
        raise LeftAloneError(f"{name} comes from elsewhere: add {PLUGIN} to it there")
    value = variable.value
    if PLUGIN in value.split(",") or (not value and may_be_empty):
        return
    if variable.scalar.style is None and (not variable.scalar.value or variable.is_flow):
        raise LeftAloneError(f"put the value of {name} in quotes")
    edit.widen(variable.scalar, after=f",{PLUGIN}" if value else PLUGIN)


def restore_environment(server: Node, key: str, edit: Editor) -> None:
    """Take the variables off again. Raises LeftAloneError."""
    found = entry(server, key)
    if found is None:
        return
    for name, variable in _written(found[1]).items():
        value = variable.value
        if variable.scalar is None:
            continue
        if name == _PATH and value.startswith(f"{PLUGIN_FOLDER}:") and value != _REFERENCE:
            edit.narrow(variable.scalar, before=f"{PLUGIN_FOLDER}:", skip=variable.skip)
        elif name in PLUGINS_VARIABLES and value.endswith(f",{PLUGIN}"):
            edit.narrow(variable.scalar, after=f",{PLUGIN}")
        elif name in PLUGINS_VARIABLES and value == PLUGIN:
            # Without quotes, what is left would be null instead of an empty text.
            is_bare = not variable.scalar.style and not variable.skip
            edit.narrow(variable.scalar, after=PLUGIN, left='""' if is_bare else "")
    edit.drop(server, key, _is_ours)


def _is_ours(element: Any) -> bool:
    if isinstance(element, tuple):
        name, value = element
    elif isinstance(element, Mapping):
        name, value = str(element.get("name")), element.get("value")
    else:
        name, _, value = str(element).partition("=")
    return name in VARIABLES and value in (
        (VARIABLES[name], _REFERENCE) if name == _PATH else (VARIABLES[name],)
    )


def _written(inner: Node | None) -> dict[str, _WrittenVariable]:
    found: dict[str, _WrittenVariable] = {}
    if inner is None:
        return found
    if is_mapping(inner):
        for name, value in inner.value:
            found[str(name.value)] = _WrittenVariable(_scalar(value), 0, inner.flow_style)
    for element in inner.value if is_list(inner) else ():
        if is_mapping(element):
            scalar = _scalar(child(element, "value"))
            found[str(plain(element).get("name"))] = _WrittenVariable(scalar, 0, element.flow_style)
        elif isinstance(plain(element), str):
            name, sign, _ = element.value.partition("=")
            scalar = element if sign else None
            found[name] = _WrittenVariable(scalar, len(name) + 1, inner.flow_style)
    return found


def _scalar(value: Node | None) -> Node | None:
    """The node if it is a value; an alias is not one that may be changed."""
    is_value = isinstance(value, yaml.ScalarNode) and not isinstance(value, Alias)
    return value if is_value and not is_null(value) else None
