"""Patches methods of vLLM in two phases: find and check all of them, then replace all of them.

What was replaced can be put back at any time. An attribute that other code has replaced since then
stays as it is: our wrapper then remains inside theirs and only passes the call on.
"""

import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kvscope_events.observers.vllm.wrappers import Hook

Wrapper = Callable[..., Any]
Wrap = Callable[[Hook, Wrapper], Wrapper]


class UnknownMethodError(Exception):
    """A method that is not there, or has other parameters than those that an observer reads."""

    def __init__(self, hook: Hook, found: str) -> None:
        wanted = ", ".join(("self", *hook.parameters))
        super().__init__(f"looked for {hook.owner}.{hook.method}({wanted}), found {found}")
        self.hook = hook


class ReplacedError(Exception):
    """Other code has replaced a method since we put the original back."""

    def __init__(self, owner: type, method: str) -> None:
        super().__init__(f"other code has replaced {owner.__name__}.{method} meanwhile")


class Found(NamedTuple):
    """A method of vLLM that can be replaced."""

    hook: Hook
    owner: type
    original: Wrapper


class Patches:
    """The replaced methods of this process."""

    def __init__(self) -> None:
        self.replaced: list[tuple[type, str, Wrapper, Wrapper]] = []
        """Class, name, original and wrapper of what is replaced now."""
        self.methods: frozenset[tuple[str, str]] = frozenset()
        """Class and method of what is observed."""
        self._lifted: list[tuple[type, str, Wrapper, Wrapper]] = []

    def apply(self, found: Iterable[Found], wrap: Wrap) -> None:
        """Replace these methods; if one cannot be, put all back and raise."""
        try:
            for hook, owner, original in found:
                wrapper = wrap(hook, original)
                setattr(owner, hook.method, wrapper)
                self.replaced.append((owner, hook.method, original, wrapper))
        except BaseException:
            self.restore()
            raise
        self.methods = frozenset((owner.__name__, name) for owner, name, *_ in self.replaced)

    def restore(self) -> None:
        """Put the originals back where the attribute is still ours."""
        for owner, name, original, wrapper in reversed(self.replaced):
            if owner.__dict__.get(name) is wrapper:
                setattr(owner, name, original)
        self.replaced.clear()
        self._lifted.clear()

    def lift(self, kept: str) -> None:
        """Put the originals back for a while, as `restore` does; methods named `kept` stay."""
        for owner, name, original, wrapper in self.replaced:
            if name != kept and owner.__dict__.get(name) is wrapper:
                setattr(owner, name, original)
                self._lifted.append((owner, name, original, wrapper))

    def put_back(self) -> None:
        """The opposite of `lift`; raises ReplacedError, without effect, if it is not possible."""
        for owner, name, original, _ in self._lifted:
            if owner.__dict__.get(name) is not original:
                raise ReplacedError(owner, name)
        for owner, name, _, wrapper in self._lifted:
            setattr(owner, name, wrapper)
        self._lifted.clear()


def find(hooks: Iterable[Hook]) -> list[Found]:
    """The methods that this vLLM has; raises UnknownMethodError for one that must be there.

    A method that may be missing but has unknown parameters is an error as well: what it does is not
    known.
    """
    found = []
    for hook in hooks:
        try:
            owner = getattr(importlib.import_module(hook.module), hook.owner)
        except (ImportError, AttributeError) as error:
            if hook.required:
                raise UnknownMethodError(hook, f"no class: {error}") from error
            continue
        original = owner.__dict__.get(hook.method)
        if original is None:
            if hook.required:
                raise UnknownMethodError(hook, "no such method")
            continue
        check_parameters(hook, original)
        found.append(Found(hook, owner, original))
    return found


def check_parameters(hook: Hook, method: Any) -> None:
    """Raise UnknownMethodError unless the method begins with the parameters that we know."""
    if not inspect.isfunction(method):
        raise UnknownMethodError(hook, f"a {type(method).__name__}")
    names = tuple(inspect.signature(method).parameters)
    wanted = ("self", *hook.parameters)
    if names[: len(wanted)] != wanted:
        raise UnknownMethodError(hook, f"({', '.join(names)})")
