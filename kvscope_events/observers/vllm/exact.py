"""Compiles a wrapper with exactly the parameters of the method that it wraps.

Passing `*args, **kwargs` on takes a quarter of a microsecond, more than all the rest of the
wrapper, and the method is called for every running request in every step.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

Method = Callable[..., Any]


def compiled(original: Method, body: str, names: dict[str, Any]) -> Method | None:
    """A function with the parameters of `original`; None if they cannot be written out.

    body: lines of source, in which `{arguments}` stands for all arguments by place, `{by_place}`
    for all but `self`, each with a comma behind it, and `{named}` for these by name. names: what it
    refers to. Only identifiers get into the source: default values are passed as objects.
    """
    parameters, arguments = [], []
    scope = dict(names)
    for parameter in inspect.signature(original).parameters.values():
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.name in names:
            return None
        text = parameter.name
        if parameter.default is not parameter.empty:
            scope[f"_default_of_{text}"] = parameter.default
            text += f"=_default_of_{text}"
        parameters.append(text)
        arguments.append(parameter.name)
    head = f"def wrapper({', '.join(parameters)}):\n"
    named = ", ".join(f"{argument}={argument}" for argument in arguments[1:])
    by_place = "".join(f"{argument}, " for argument in arguments[1:])
    texts = {"arguments": ", ".join(arguments), "by_place": by_place, "named": named}
    for key, text in texts.items():
        body = body.replace(f"{{{key}}}", text)
    exec(compile(head + body, "<kvscope>", "exec"), scope)
    return functools.update_wrapper(scope["wrapper"], original)
